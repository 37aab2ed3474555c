"""Writes the report about runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, Final

from outpace.record.comparison import VariantResult
from outpace.report.explaining.words import section as explanation
from outpace.report.faults import what_failures_cost
from outpace.report.figures.cut_offs import cut_offs
from outpace.report.figures.progress import progress
from outpace.report.figures.split import split_of_runs, split_of_workers
from outpace.report.figures.staleness import staleness
from outpace.report.figures.timeline import timeline
from outpace.report.findings import findings
from outpace.report.frame import write_page
from outpace.report.parts import Cell, Code, Details, Part, Row, Section, Table, Words, warning
from outpace.report.read.runs import Run, read_runs, read_variants
from outpace.report.read.traces import totals_of
from outpace.report.table import (
    COLUMNS,
    NOTHING,
    summary_of_run,
    summary_of_runs,
    target_columns,
)
from outpace.report.target import ReportTarget, target_of
from outpace.report.words import listed
from outpace.support.yaml_files import write_yaml

_RUN_COLUMNS: Final = 3  # quantities shown for each seed's run: accuracy, loss, duration
_SEEDS: Final = 5  # largest number of seeds that are listed
_CLOSED: Final = "When iterations were closed"
_CLOSED_LEAD: Final = (
    "The gradients that had arrived when an iteration was closed made its update. The other "
    "workers stopped computing and continued with the next iteration; the time that they had spent "
    "counts as compute in 'Where the time went'."
)
_SPLIT: Final = (
    "Compute: the worker computes its gradient. Wait: the strategy holds the worker back, until a "
    "server answers or until all workers have joined an all-reduce. Communicate: transfers and "
    "queues."
)
_TIMELINE: Final = (
    "Each worker has a lane; the numbers are iterations. An arrow runs from the worker whose push "
    "ended a wait to the worker that could then continue. Point at a bar, or tap it, for details."
)
_ABSENT: Final = object()  # the value of a key that a configuration does not have


def write_report(
    folders: Sequence[Path], path: Path, compared: Sequence[VariantResult] = ()
) -> list[str]:
    """Write the report about the runs in these folders to `path`.

    A run that failed or was interrupted is shown with its status. Parts that need a missing or
    damaged file are left out. If the folders are the runs of a comparison over several seeds, each
    variant is shown once, with means over its seeds.

    Args:
        compared: the results of the variants, if they are known; empty: they are read from
            comparison.json.

    Returns:
        A line for each missing or damaged file: its path and the cause.

    Raises:
        ConfigError: if a folder is not the folder of a run, or `path` cannot be written.
    """
    folders = [Path(folder) for folder in folders]
    runs = read_variants(folders, compared) or read_runs(folders)
    alone = [each for run in runs for each in run.seeds or [run]]
    target = target_of(alone)
    several = len(alone) > 1
    kind = "variants" if runs[0].seeds else "runs"
    name = f"{len(runs)} {kind}" if len(runs) > 5 else listed([run.name for run in runs])
    notices = [_notice(run) for run in runs if not run.complete] if several else []
    notices += [warning(text, run.name if several else "") for run in runs for text in run.warnings]
    write_page(
        Path(path),
        title=f"Outpace: {listed([run.name for run in runs])}",
        heading=f"{'Comparison' if several else 'Run'}: {name}",
        what=_what(alone),
        findings=findings(runs, target),
        sections=_sections(runs, target),
        notices=notices,
        footer=[Details("Digests: equal digests mean equal results", [_digests(alone)])],
    )
    means = [run for run in runs if run.seeds]
    return [problem for run in [*means, *alone] for problem in run.problems]


def _sections(runs: Sequence[Run], target: ReportTarget | None) -> list[Section]:
    seeds, several = bool(runs[0].seeds), len(runs) > 1 or bool(runs[0].seeds)
    traced = [run.counted()[0] for run in runs]  # for a variant, its first seed
    totals = [totals_of(run) for run in traced]
    of_traces = f" Shown is one seed of each variant, such as {traced[0].name}." * seeds
    of_both = " The upper figure shows means over the seeds, the lower one a single seed." * seeds
    summary = summary_of_runs(runs, target) if several else summary_of_run(runs[0], target)
    splits = [*([split_of_runs(runs)] if several else []), split_of_workers(traced, totals)]
    lanes = [timeline(traced, totals)]
    closed = cut_offs(traced, totals)
    sections = [
        Section("summary", "Summary", summary),
        Section("progress", "Progress", [progress(runs, target)]),
        what_failures_cost(runs),
        None
        if closed is None
        else Section("cut-offs", _CLOSED, [closed], _CLOSED_LEAD + of_traces),
        Section("time-split", "Where the time went", splits, _SPLIT + of_both),
        Section("timeline", "Who waited for whom", lanes, _TIMELINE + of_traces),
        explanation(traced),
        Section("staleness", "Staleness", [staleness(runs)], "Of all seeds together." * seeds),
        _runs(runs, target) if seeds else None,
        Section("configuration", "Configuration", _configuration(traced)),
    ]
    return [section for section in sections if section is not None]


def _what(runs: Sequence[Run]) -> str:
    """Return task, workers, servers and seed, with all values if the runs differ."""

    def values(*keys: str, of: Sequence[Run] = runs) -> list[str]:
        found = (run.setting(*keys) for run in of)
        return list(dict.fromkeys(str(value) for value in found if value is not None))

    def counted(noun: str, key: str, of: Sequence[Run] = runs) -> str:
        numbers = values(key, of=of)
        return f"{listed(numbers)} {noun}{'' if numbers == ['1'] else 's'}" if numbers else ""

    task = listed(values("task", "kind"))
    scripts = dict.fromkeys(PurePath(path).name for path in values("task", "path"))
    target = listed(values("task", "target") or list(scripts))
    seeds = values("seed")
    parts = [
        f"{task} ({target})" if target else task,
        runs[0].kind.upper() if len(runs) == 1 else "",
        counted("worker", "workers"),
        counted("server", "servers", of=[run for run in runs if run.summary.get("servers") != []]),
        "real processes" if all(run.real for run in runs) else "",
        f"{len(seeds)} seeds" if len(seeds) > _SEEDS else f"seed {listed(seeds)}" if seeds else "",
    ]
    return " · ".join(part for part in parts if part)


def _runs(variants: Sequence[Run], target: ReportTarget | None) -> Section:
    """Return a table of the runs with one seed each."""
    runs = [run for variant in variants for run in variant.seeds]
    shown = [*target_columns(target, runs[0]), *COLUMNS[:_RUN_COLUMNS]]
    rows = []
    for run in runs:
        rows.append([run.name, run.status, *(column.text(run) for column in shown)])
    head = ["Folder", "Status", *(column.title for column in shown)]
    lead = "Each of these folders, which are in the folder of this page, has its own report."
    return Section("runs", "Runs", [Table("runs-table", head, rows)], lead)


def _notice(run: Run) -> Words:
    error = f": {run.error}" if run.error else ""
    words = run.status if run.seeds else f"is not complete ({run.status})"
    words = "failed" if run.status == "failed" else words
    return Words(words + error, "notice", run.name)


def _digests(runs: Sequence[Run]) -> Table:
    def cells(run: Run) -> Iterator[Cell]:
        yield Cell(run.name)
        for of in ("parameters", "trace"):
            yield Cell(str(run.summary.get(f"{of}_digest", NOTHING)), look="code")

    rows = map(cells, runs)
    return Table("digests", ["Run", "Parameters", "Trace"], rows)


def _configuration(runs: Sequence[Run]) -> list[Part]:
    """Return a table of the keys that differ, if there are several runs, and the YAML of each."""
    texts = [Details(run.name, [Code(run.config_text)]) for run in runs]
    return [_differences(runs), *texts] if len(runs) > 1 else [*texts]


def _differences(runs: Sequence[Run]) -> Part:
    flat = [_flat(run.config) for run in runs]
    rows: list[Row] = []
    for key in dict.fromkeys(key for entry in flat for key in entry):
        values = [entry.get(key, _ABSENT) for entry in flat]
        if any(value != values[0] for value in values):
            rows.append([Cell(key, look="code"), *(_text(value) for value in values)])
    if not rows:
        return Words("The configurations are the same.")
    return Table("differences", ["Differs in", *(run.name for run in runs)], rows)


def _flat(config: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Return the values by dotted key."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            found |= _flat(value, f"{path}{key}.")
        else:
            found[f"{path}{key}"] = value
    return found


def _text(value: Any) -> str:
    if value is _ABSENT:
        return NOTHING
    return value if isinstance(value, str) else write_yaml(value).removesuffix("...\n").strip()
