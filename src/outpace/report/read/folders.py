"""Finds the runs of a report in the given folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from outpace.errors import ConfigError
from outpace.record.comparison import read_comparison
from outpace.record.folder import METRICS, SUMMARY, TRACE, read_summary
from outpace.record.reading import one_line
from outpace.report.read.runs import seed_of
from outpace.support.regular_files import require_no_link


def runs_in(folders: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """Return the folders that are runs, and the runs inside the folders that are comparisons.

    Each run is returned once, even if it is named several times. If the summary of a run in a
    comparison cannot be read, the run is left out, and a line says so.

    Raises:
        ConfigError: if a folder contains no run.
    """
    runs: dict[Path, Path] = {}
    lines: list[str] = []
    for folder in folders:
        readable, problems = [], []
        for run in _inside(folder) or [folder]:
            try:
                read_summary(run, lenient=True)
            except ConfigError as error:
                problems.append(one_line(error))
            else:
                readable.append(run)
        if not readable:
            raise ConfigError("\n".join(problems))
        for run in readable:
            runs.setdefault(run.resolve(), run)
        lines += [f"{problem}; this run is left out" for problem in problems]
    return list(runs.values()), lines


def _inside(folder: Path) -> list[Path]:
    """Return the runs inside this folder; none if it is itself a run, or not a folder."""
    try:
        if (folder / SUMMARY).exists() or not folder.is_dir():
            return []
        found: list[Path] = []
        for path in _variants_in(folder):
            seeds = [run for run in path.glob("seed-*") if seed_of(run) >= 0 and _is_run(run)]
            runs = sorted(seeds, key=seed_of) or [each for each in (path,) if _is_run(each)]
            for each in {path, *runs} if runs else ():
                require_no_link(each)
            found += runs
        return found
    except OSError as error:
        raise ConfigError(f"cannot read {folder}: {error.strerror}") from error


def _variants_in(folder: Path) -> list[Path]:
    """Return the paths in a folder, in the order of its comparison.json."""
    order = {each.name: place for place, each in enumerate(read_comparison(folder))}
    return sorted(
        folder.iterdir(), key=lambda path: (order.get(path.name, len(order)), seed_of(path), path)
    )


def _is_run(folder: Path) -> bool:
    return any((folder / mark).exists() for mark in (SUMMARY, METRICS, TRACE))
