"""Finds files that several scripts have written: of workers of a run, or of runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from outpace.experiment.compared import Row
from outpace.sync.messages import worker_name

_MOST_NAMED: Final = 3


def overwritten(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a warning for each group of runs that have written the same files."""
    runs = defaultdict(list)
    for row in rows:
        name = row.variant.name if row.folder is None else row.folder.name
        for path in row.summary.get("files_written", ()):
            runs[path].append(name)
    for group, paths in _shared(runs):
        yield (
            f"the scripts of {group} wrote the same files, so only those of the last run "
            f"are left: {paths}; let the script write to outpace.output_dir()"
        )


def overwritten_by_workers(written: Mapping[int, Iterable[str]]) -> Iterator[str]:
    """Yield a warning for each group of workers of a run that have written the same files.

    written: by worker, the files that its script has written.
    """
    workers = defaultdict(list)
    for worker, paths in sorted(written.items()):
        for path in paths:
            workers[path].append(worker_name(worker))
    for group, names in _shared(workers):
        yield (
            f"the scripts of {group} wrote the same files, each over those of the others: {names}; "
            "write them in worker 0 alone (if outpace.rank() == 0), or to outpace.output_dir()"
        )


def _shared(writers: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    """Yield in words each group that has written the same files, and their names."""
    files = defaultdict(list)
    for path, names in sorted(writers.items()):
        if len(names) > 1:
            files[tuple(names)].append(Path(path).name)
    for group, paths in files.items():
        yield _listed(group), _listed(paths)


def _listed(names: Sequence[str]) -> str:
    shown = list(names[:_MOST_NAMED])
    if len(names) > _MOST_NAMED:
        shown.append(f"{len(names) - _MOST_NAMED} more")
    return ", ".join(shown)
