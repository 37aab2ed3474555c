"""The numbers of every run side by side, the best of each column marked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from outpace.report.figures.figure import colour
from outpace.report.read.runs import Run, clock, strategies
from outpace.report.target import ReportTarget
from outpace.report.words import SPACE, escaped, listed, number, percent, seconds, size

NOTHING: Final = "–"


@dataclass(frozen=True, slots=True)
class Column:
    """A quantity. better: which end is best; None where neither is.

    total: it grows with the work done, so it is judged only among runs that did as much.
    timed: it is not judged between runs in virtual time and on real processes.
    missing: the text for a run without a value.
    """

    title: str
    hint: str
    value: Callable[[Run], float | None]
    show: Callable[[float], str]
    better: Literal["low", "high"] | None = None
    total: bool = False
    timed: bool = False
    missing: Callable[[Run], str] = lambda _: NOTHING


def columns(target: ReportTarget | None) -> list[Column]:
    """What is told of every run; with the time to `target` if there is one."""

    def of(*keys: str) -> Callable[[Run], float | None]:
        return lambda run: run.number(*keys)

    def count(value: float) -> str:
        return f"{value:,.0f}"

    to_target = (
        Column(
            f"Time to{SPACE}{target.title}",
            f"time until an evaluation first showed {target.words}, the target "
            + ("of the configuration" if target.given else "derived from what every run reached"),
            target.reached_s,
            seconds,
            "low",
            timed=True,
            missing=lambda run: "not reached" if target.applies_to(run) else NOTHING,
        )
        if target is not None
        else None
    )
    found = [
        to_target,
        Column("Accuracy", "at the end, on the test set", of("accuracy"), percent, "high"),
        Column("Train loss", "at the end", of("train_loss"), number, "low"),
        Column(
            "Virtual time",
            "from start to end of the run",
            of("virtual_time_s"),
            seconds,
            "low",
            total=True,
        ),
        Column(
            "Wall time",
            "from start to end of the run, on real processes",
            of("wall_time_s"),
            seconds,
            "low",
            total=True,
        ),
        Column(
            "Gradients/s",
            "applied gradients per second, from start to end",
            lambda run: run.gradients_per_s,
            number,
            "high",
            timed=True,
        ),
        Column(
            "Waiting",
            "share of the workers' time",
            lambda run: run.waiting_share,
            percent,
            "low",
            timed=True,
        ),
        Column(
            "Staleness, mean",
            "updates between a gradient's read and its application",
            of("staleness", "mean"),
            number,
            "low",
        ),
        Column(
            "Staleness, max",
            "updates, of any gradient at any server",
            of("staleness", "max"),
            count,
            "low",
        ),
        Column(
            "Delayed pulls",
            "requests for parameters that a server held back, over all servers",
            of("delayed_pulls"),
            count,
            "low",
            total=True,
        ),
        Column("Compute", "mean per worker", of("seconds", "compute"), seconds),
        Column(
            "Communicate",
            "mean per worker",
            of("seconds", "communicate"),
            seconds,
            "low",
            total=True,
            timed=True,
        ),
        Column(
            "Wait", "mean per worker", of("seconds", "wait"), seconds, "low", total=True, timed=True
        ),
        Column(
            "Sent", "bytes sent by workers and servers", of("bytes_sent"), size, "low", total=True
        ),
        Column("Gradients", "applied to the parameters", of("gradients_applied"), count),
        Column(
            "Counted",
            "gradients in an iteration, on average; the other workers were cut off",
            of("cut_offs", "mean_count"),
            number,
        ),
        Column("Synchronizations", "all-reduces among the workers", of("synchronizations"), count),
        Column(
            "Window",
            "iterations of a worker in a synchronization, on average",
            of("mean_window"),
            number,
        ),
        Column(
            "Overlap",
            "share of the time of all-reduces in which the worker computed",
            of("overlap_fraction"),
            percent,
            "high",
            timed=True,
        ),
        Column(
            "Abstained",
            "pushes without a gradient: its worker was cut off, it was not "
            "finite, or a step was skipped",
            lambda run: run.number("pushes_abstained") or None,
            count,
        ),
    ]
    return [column for column in found if column is not None]


def best_of(column: Column, runs: Sequence[Run]) -> set[int]:
    """The places of the runs that are best in a column.

    Only runs that are complete can be; nobody is where nothing is better, where there is
    nothing to compare or all that can be compared are alike.
    """
    values = {
        place: value
        for place, run in enumerate(runs)
        if run.complete and (value := column.value(run)) is not None
    }
    if column.better is None or len(values) < 2 or len(set(values.values())) == 1:
        return set()
    compared = [runs[place] for place in values]
    if column.total and not _same_work(compared):
        return set()
    if column.timed and clock(compared) == "time":
        return set()
    best = min(values.values()) if column.better == "low" else max(values.values())
    return {place for place, value in values.items() if value == best}


def _same_work(runs: Sequence[Run]) -> bool:
    """Whether they applied equally many gradients, within one in a hundred."""
    counts = [run.number("gradients_applied") or 0.0 for run in runs]
    return max(counts) - min(counts) <= 0.01 * max(counts)


def summary_table(runs: Sequence[Run], target: ReportTarget | None) -> str:
    """One row per run. Columns that no run has a value for are left out."""
    shown = [c for c in columns(target) if any(c.value(run) is not None for run in runs)]
    marked = [best_of(column, runs) for column in shown]
    head = "".join(
        f'<th scope="col" title="{escaped(c.hint)}">{escaped(c.title)}</th>' for c in shown
    )
    named = all(run.name.lower() == run.kind for run in runs)  # after their strategies
    said = [] if named else strategies(runs)
    title = '<th scope="col" class="words">Strategy</th>' if said else ""
    rows = []
    for place, run in enumerate(runs):
        cells = "".join(
            _cell(column, run, place in best) for column, best in zip(shown, marked, strict=True)
        )
        rows.append(
            '<tr><th scope="row">'
            f'<span class="name">{_swatch(place)}{escaped(run.name)}</span></th>'
            f"<td>{status_badge(run)}</td>{_words(said, place)}{cells}</tr>"
        )
        if run.error:
            rows.append(
                f'<tr class="error"><td colspan="{len(shown) + 2 + bool(said)}">'
                f"<div><b>{escaped(run.name)}:</b> {escaped(run.error)}</div></td></tr>"
            )
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Summary of the runs">'
        '<table id="summary-table"><thead><tr><th scope="col">Run</th>'
        f'<th scope="col">Status</th>{title}{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
        f'<p class="legend">{_legend(runs, shown, any(marked))}</p>'
    )


def summary_tiles(run: Run, target: ReportTarget | None) -> str:
    """The same quantities of a single run."""
    tiles = "".join(
        f'<div><dt title="{escaped(c.hint)}">{escaped(c.title)}</dt>'
        f"<dd>{escaped(c.show(value))}</dd></div>"
        for c in columns(target)
        if (value := c.value(run)) is not None
    )
    error = f'<p class="notice">{escaped(run.error)}</p>' if run.error else ""
    return (
        f'<dl id="summary-table" class="tiles"><div><dt>Status</dt>'
        f"<dd>{status_badge(run)}</dd></div>{tiles}</dl>{error}"
        '<p class="legend">'
        f"{_times([run])}. Compute, communicate and wait are means per worker; "
        "staleness is counted in updates of the parameters.</p>"
    )


def status_badge(run: Run) -> str:
    kind = run.status if run.status in ("complete", "partial", "failed") else "partial"
    return f'<span class="status {kind}">{escaped(run.status)}</span>'


def _cell(column: Column, run: Run, best: bool) -> str:
    value = column.value(run)
    text = escaped(column.missing(run)) if value is None else escaped(column.show(value))
    if not best:
        return f"<td>{text}</td>"
    mark = '<span class="mark" role="img" aria-label="best">★</span>'
    return f'<td class="best"><b>{text}</b>{mark}</td>'


def _words(said: Sequence[str], place: int) -> str:
    return f'<td class="words">{escaped(said[place])}</td>' if said else ""


def _swatch(place: int) -> str:
    return f'<i class="swatch" style="background:{colour(place)}"></i>'


def _legend(runs: Sequence[Run], shown: Sequence[Column], marked: bool) -> str:
    if not marked:
        return f"{_times(runs)}."
    high = [c.title.lower() for c in shown if c.better == "high"]
    neutral = [c.title.lower() for c in shown if c.better is None]
    return (
        f'<span class="mark">★</span> best of its column among the complete runs: the highest '
        f"for {escaped(listed(high))}, the lowest elsewhere. "
        f"Unmarked: columns in which all are alike, and {escaped(listed(neutral))}, "
        "the work itself; totals are marked only if all applied equally many gradients. "
        f"{_times(runs)}; compute, communicate and wait are means per worker."
    )


def _times(runs: Sequence[Run]) -> str:
    """On which clock they are."""
    if clock(runs) == "time":
        names = escaped(listed([run.name for run in runs if run.real]))
        return (
            f"Times of {names} are wall time, on real processes; the others are virtual, and "
            "neither is measured by the other"
        )
    return "Times are wall time" if runs[0].real else "Times are virtual"
