"""The numbers of every run side by side, the best of each column marked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from outpace.report.best import best_of
from outpace.report.columns import NOTHING, Column, columns
from outpace.report.figures.figure import colour
from outpace.report.frame import tiles
from outpace.report.read.runs import Run, clock, strategies
from outpace.report.target import ReportTarget
from outpace.report.words import escaped, listed, plural

_BEST: Final = (
    '<span class="mark">★</span> best of its column among the complete runs. Not marked are '
    "columns in which all runs are alike, columns without a better end, and totals if the runs "
    "applied different numbers of gradients. "
)
_MEANS: Final = (
    "Compute, communicate and wait are means per worker; staleness is counted in updates of the "
    "parameters."
)
_MOST_COLUMNS: Final = 10  # for which a page of 1280 pixels has room
_SEEDS: Final = (
    " All numbers are means over seeds; small ones are 95 % intervals of the mean (Student's t). "
    "Variants are compared seed by seed: not distinguishable means that the interval includes "
    "equality. A run that missed the target counts with the time at which it ended, so that the "
    "mean is a lower bound. Best is only a variant whose interval of the difference to every "
    "other one excludes equality."
)


def summary_table(runs: Sequence[Run], target: ReportTarget | None) -> str:
    """Return HTML with a row per run, without the columns that are empty for all runs.

    Columns for which a page has no room follow in a second table, which is folded up.
    """
    every = columns(target, runs[0])
    shown = [(c, best_of(c, runs)) for c in every if any(_known(c, run) for run in runs)]
    named = all(run.name.lower() == run.kind for run in runs)  # runs are named by strategy
    said = [] if named else strategies(runs)
    most = _MOST_COLUMNS - 2 * bool(said)  # the words need more room
    more = _table("more", runs, shown[most:], [])
    return (
        f"{_table('summary', runs, shown[:most], said)}"
        f'<p class="legend">{_BEST if any(best for _, best in shown) else ""}{_times(runs)}. '
        f"{_MEANS}{_SEEDS if runs[0].seeds else ''}{_derived(target)}</p>"
        + (f"<details><summary>More numbers</summary>{more}</details>" if shown[most:] else "")
    )


def _table(
    name: str, runs: Sequence[Run], shown: Sequence[tuple[Column, set[int]]], said: list[str]
) -> str:
    """Return a table as HTML.

    Args:
        shown: the columns, each with the places of its best runs.
        said: the strategy of each run in words; empty: there is no column for it.
    """
    heads = [f'<th scope="col" title="{escaped(c.hint)}">{escaped(c.title)}</th>' for c, _ in shown]
    first = sum(column.answers for column, _ in shown)  # columns about the target, which come first
    is_first = name == "summary"
    title = '<th scope="col" class="state">Status</th>' if is_first else ""
    title += '<th scope="col" class="words">Strategy</th>' if said else ""
    rows = []
    for place, run in enumerate(runs):
        cells = [_cell(column, run, place in best) for column, best in shown]
        status = f'<td class="state">{_status(run)}</td>' if is_first else ""
        words = f'<td class="words">{escaped(said[place])}</td>' if said else ""
        rows.append(
            '<tr><th scope="row">'
            f'<span class="name"><i class="swatch" style="background:{colour(place)}"></i>'
            f"{escaped(run.name)}</span></th>"
            f"{''.join(cells[:first])}{status}{words}{''.join(cells[first:])}</tr>"
        )
        if run.error and is_first:
            rows.append(
                f'<tr class="error"><td colspan="{len(shown) + 2 + bool(said)}">'
                f"<div><b>{escaped(run.name)}:</b> {escaped(run.error)}</div></td></tr>"
            )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{name} of the runs">'
        f'<table id="{name}-table"><thead><tr>'
        f'<th scope="col">{"Variant" if runs[0].seeds else "Run"}</th>'
        f"{''.join(heads[:first])}{title}{''.join(heads[first:])}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _known(column: Column, run: Run) -> bool:
    """True if there is a value, or a bound over several seeds."""
    known = column.value(run) is not None
    return known or bool(run.seeds and column.missing(run) != NOTHING)


def _derived(target: ReportTarget | None) -> str:
    if target is None or target.given:
        return ""
    return f" The target, {target.title}, is derived from the results: every run reached it."


def summary_tiles(run: Run, target: ReportTarget | None) -> str:
    """Return HTML with the quantities of a single run."""
    shown = [(c, value) for c in columns(target, run) if (value := c.value(run)) is not None]
    error = f'<p class="notice">{escaped(run.error)}</p>' if run.error else ""
    return (
        tiles(
            {"Status": _status(run), **{c.title: escaped(c.show(v)) for c, v in shown}},
            {c.title: c.hint for c, _ in shown},
        )
        + f'{error}<p class="legend">{_times([run])}. {_MEANS}</p>'
    )


def _status(run: Run) -> str:
    kind = "failed" if run.status.endswith("failed") else "partial"
    kind = "complete" if run.complete else kind
    count = f"<small>{plural(len(run.seeds), 'seed')}</small>" if run.seeds else ""
    return f'<span class="status {kind}">{escaped(run.status)}</span>{count}'


def _cell(column: Column, run: Run, best: bool) -> str:
    value = column.value(run)
    text = escaped(column.missing(run)) if value is None else escaped(column.show(value))
    spread = f"<small>{escaped(said)}</small>" if (said := column.spread(run)) else ""
    if not best:
        return f"<td>{text}{spread}</td>"
    mark = '<span class="mark" role="img" aria-label="best">★</span>'
    return f'<td class="best"><b>{text}</b>{mark}{spread}</td>'


def _times(runs: Sequence[Run]) -> str:
    """Say whether times are wall time or virtual time."""
    if clock(runs) == "time":
        names = escaped(listed([run.name for run in runs if run.real]))
        return (
            f"Times of {names} are wall time, on real processes; the others are virtual time. "
            "Wall time and virtual time are not comparable, so no best time is marked"
        )
    return "Times are wall time" if runs[0].real else "Times are virtual"
