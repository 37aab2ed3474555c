"""Puts the report together: one file that needs nothing else, online or off."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from importlib import import_module, metadata, resources
from pathlib import Path
from string import Template
from typing import Final

from outpace.errors import ConfigError
from outpace.folder import replace_file
from outpace.report.configuration import configuration
from outpace.report.events import Totals, read_totals
from outpace.report.figure import Figure
from outpace.report.findings import findings
from outpace.report.progress import progress
from outpace.report.reading import Unreadable, reading
from outpace.report.runs import Run, read_runs
from outpace.report.split import split_of_runs, split_of_workers
from outpace.report.staleness import staleness
from outpace.report.table import summary_table, summary_tiles
from outpace.report.target import common_target
from outpace.report.timeline import timeline
from outpace.report.words import embedded, escaped, listed

# One of them is near the start of every report; the second in those older than the first.
_MARKS: Final = (b'<meta name="generator" content="outpace">', b'<p class="brand">Outpace</p>')
_START: Final = 1 << 14  # bytes
_MOST_WORKERS: Final = 1_000_000


def write_report(folders: Sequence[Path], path: Path) -> list[str]:
    """Write the report over the runs in these folders, or over the only one, to `path`.

    Runs that failed or were cut off are in it with their status; files that are missing or
    damaged are left out. Returns a line for each of those: the file and the cause. Raises
    ConfigError if a folder is not that of a run, plotly is not installed or `path` cannot
    be written.
    """
    plotly = _plotly()
    runs = read_runs([Path(folder) for folder in folders])
    # A name or message with half a surrogate pair must not keep the rest from being read.
    page = _page(runs, plotly).encode("utf-8", "replace")
    try:
        replace_file(Path(path), lambda partial: partial.write_bytes(page))
    except OSError as error:
        raise ConfigError(f"cannot write the report {path}: {error.strerror}") from error
    return [problem for run in runs for problem in run.problems]


def is_report(path: Path) -> bool:
    """Whether there is a report made by this module."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            start = file.read(_START)
    except OSError:
        return False
    return any(mark in start for mark in _MARKS)


def _plotly() -> str:
    """The text of plotly.js."""
    try:
        return str(import_module("plotly.offline").get_plotlyjs())
    except ImportError:
        raise ConfigError(
            "the report needs plotly, which is not installed: pip install 'outpace[report]'"
        ) from None


def _page(runs: Sequence[Run], plotly: str) -> str:
    totals = [_totals(run) for run in runs]
    target = common_target(runs)
    several = len(runs) > 1
    figures: dict[str, list[Figure]] = {
        "progress": [progress(runs, totals, target)],
        "split": [split_of_runs(runs)] if several else [],
        "workers": [split_of_workers(runs, totals)],
        "timeline": [timeline(runs, totals)],
        "staleness": [staleness(runs)],
    }
    drawn = [figure for group in figures.values() for figure in group if figure.views]
    failed = [run for run in runs if not run.complete]
    said = findings(runs, totals, target)
    return Template(_asset("page.html")).substitute(
        {name: "".join(figure.html() for figure in group) for name, group in figures.items()},
        title=escaped(f"Outpace: {listed([run.name for run in runs])}"[:120]),
        kind="Comparison" if several else "Run",
        name=escaped(f"{len(runs)} runs" if len(runs) > 5 else listed([r.name for r in runs])),
        what=escaped(_what(runs)),
        findings="".join(f"<li>{escaped(sentence)}</li>" for sentence in said),
        notices="".join(_notice(run) for run in failed) if several else "",
        summary=summary_table(runs, target) if several else summary_tiles(runs[0]),
        configuration=configuration(runs),
        footer=_footer(runs),
        style=_asset("report.css"),
        plotly=plotly,
        figures=embedded({figure.id: figure.data() for figure in drawn}),
        script=_asset("report.js"),
    )


def _totals(run: Run) -> Totals | None:
    counts = run.summary.get("iterations")
    workers = len(counts) if isinstance(counts, list) else run.setting("workers")
    try:
        with reading(run.trace):
            if not isinstance(workers, int) or not 0 < workers <= _MOST_WORKERS:
                run.trace.stat()
                raise ValueError("no other file says how many workers there were")
        return read_totals(run.trace, workers, run.time_s or 0.0)
    except Unreadable as error:
        run.problems.append(str(error))
        return None


def _what(runs: Sequence[Run]) -> str:
    """Task, workers, servers and seed; several where the runs differ."""

    def values(*keys: str) -> list[str]:
        found = (run.setting(*keys) for run in runs)
        return list(dict.fromkeys(str(value) for value in found if value is not None))

    def counted(noun: str, key: str) -> str:
        numbers = values(key)
        return f"{listed(numbers)} {noun}{'' if numbers == ['1'] else 's'}" if numbers else ""

    task = listed(values("task", "kind"))
    target = listed(values("task", "target"))
    seeds = values("seed")
    parts = [
        f"{task} ({target})" if target else task,
        runs[0].kind.upper() if len(runs) == 1 else "",
        counted("worker", "workers"),
        counted("server", "servers"),
        "real processes" if all(run.real for run in runs) else "",
        f"seed {listed(seeds)}" if seeds else "",
    ]
    return " · ".join(part for part in parts if part)


def _notice(run: Run) -> str:
    error = f": {run.error}" if run.error else ""
    words = "failed" if run.status == "failed" else f"is not complete ({run.status})"
    return f'<p class="notice"><b>{escaped(run.name)}</b> {escaped(words + error)}</p>'


def _footer(runs: Sequence[Run]) -> str:
    digests = "".join(
        f"<tr><th scope='row'>{escaped(run.name)}</th>"
        f"<td><code>{escaped(run.summary.get('parameters_digest', '–'))}</code></td>"
        f"<td><code>{escaped(run.summary.get('trace_digest', '–'))}</code></td></tr>"
        for run in runs
    )
    return (
        "<details><summary>Digests: equal digests mean equal results</summary>"
        '<div class="scroll"><table><thead><tr><th scope="col">Run</th>'
        '<th scope="col">Parameters</th><th scope="col">Trace</th></tr></thead>'
        f"<tbody>{digests}</tbody></table></div></details>"
        f"<p>Outpace {escaped(_version())}, {datetime.date.today().isoformat()}</p>"
    )


def _version() -> str:
    try:
        return metadata.version("outpace")
    except metadata.PackageNotFoundError:
        return ""


def _asset(name: str) -> str:
    return resources.files("outpace.report").joinpath(name).read_text(encoding="utf-8")
