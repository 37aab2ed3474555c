"""Finds files that the scripts of several runs of a comparison have written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from outpace.experiment.compared import Row

_MOST_NAMED: Final = 3


def overwritten(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a warning for each group of runs that have written the same files."""
    runs = defaultdict(list)
    for row in rows:
        name = row.variant.name if row.folder is None else row.folder.name
        for path in row.summary.get("files_written", ()):
            runs[path].append(name)
    files = defaultdict(list)
    for path, names in sorted(runs.items()):
        if len(names) > 1:
            files[tuple(names)].append(Path(path).name)
    for group, paths in files.items():
        yield (
            f"the scripts of {_listed(group)} wrote the same files, so only those of the last run "
            f"are left: {_listed(paths)}; let the script write to outpace.output_dir()"
        )


def _listed(names: Sequence[str]) -> str:
    shown = list(names[:_MOST_NAMED])
    if len(names) > _MOST_NAMED:
        shown.append(f"{len(names) - _MOST_NAMED} more")
    return ", ".join(shown)
