"""Writes the report about runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from string import Template

from outpace.report.configuration import configuration
from outpace.report.figures.cut_offs import cut_offs, section
from outpace.report.figures.figure import Figure
from outpace.report.figures.progress import progress
from outpace.report.figures.split import split_of_runs, split_of_workers
from outpace.report.figures.staleness import staleness
from outpace.report.figures.timeline import timeline
from outpace.report.findings import findings
from outpace.report.frame import Page, asset, write_page
from outpace.report.read.runs import Run, read_runs
from outpace.report.read.totals import totals_of
from outpace.report.table import summary_table, summary_tiles
from outpace.report.target import target_of
from outpace.report.words import escaped, listed


def write_report(folders: Sequence[Path], path: Path) -> list[str]:
    """Write the report about the runs in these folders to `path`.

    A run that failed or was interrupted is shown with its status. Parts that need a missing or
    damaged file are left out.

    Returns:
        A line for each missing or damaged file: its path and the cause.

    Raises:
        ConfigError: if a folder is not that of a run, or `path` cannot be written.
    """
    runs = read_runs([Path(folder) for folder in folders])
    write_page(_page(runs), Path(path))
    return [problem for run in runs for problem in run.problems]


def _page(runs: Sequence[Run]) -> Page:
    totals = [totals_of(run) for run in runs]
    target = target_of(runs)
    several = len(runs) > 1
    closed = cut_offs(runs, totals)
    figures: dict[str, list[Figure]] = {
        "progress": [progress(runs, totals, target)],
        "split": [split_of_runs(runs)] if several else [],
        "workers": [split_of_workers(runs, totals)],
        "timeline": [timeline(runs, totals)],
        "staleness": [staleness(runs)],
    }
    kind = "Comparison" if several else "Run"
    name = f"{len(runs)} runs" if len(runs) > 5 else listed([run.name for run in runs])
    failed = [run for run in runs if not run.complete]
    return Page(
        title=f"Outpace: {listed([run.name for run in runs])}",
        heading=f"{kind}: {name}",
        what=_what(runs),
        findings=findings(runs, totals, target),
        notices="".join(_notice(run) for run in failed) if several else "",
        body=Template(asset("page.html")).substitute(
            {key: "".join(figure.html() for figure in group) for key, group in figures.items()},
            cut_offs=section(closed),
            summary=summary_table(runs, target) if several else summary_tiles(runs[0], target),
            configuration=configuration(runs),
        ),
        figures=[
            *(figure for group in figures.values() for figure in group),
            *([closed] if closed else []),
        ],
        footer=_footer(runs),
    )


def _what(runs: Sequence[Run]) -> str:
    """Return task, workers, servers and seed, with each value if the runs differ."""

    def values(*keys: str, of: Sequence[Run] = runs) -> list[str]:
        found = (run.setting(*keys) for run in of)
        return list(dict.fromkeys(str(value) for value in found if value is not None))

    def counted(noun: str, key: str, of: Sequence[Run] = runs) -> str:
        numbers = values(key, of=of)
        return f"{listed(numbers)} {noun}{'' if numbers == ['1'] else 's'}" if numbers else ""

    task = listed(values("task", "kind"))
    target = listed(values("task", "target"))
    seeds = values("seed")
    parts = [
        f"{task} ({target})" if target else task,
        runs[0].kind.upper() if len(runs) == 1 else "",
        counted("worker", "workers"),
        counted("server", "servers", of=[run for run in runs if not run.without_servers]),
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
    )
