"""The figure of a sweep: the objective against each key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import plotly.graph_objects as go

from outpace.report.figures.figure import (
    Figure,
    Plot,
    Views,
    axis,
    axis_from_0,
    colour,
    dots,
    log_axis,
    rounded,
    view,
)
from outpace.report.sweeps.result import Candidate, Dimension, SweepResult, shown
from outpace.report.words import escaped

_WIDE: Final = 8  # ratio of the largest to the smallest time from which the axis is logarithmic
# symbol and colour by status; the last status is drawn on top
_LOOKS: Final[dict[str, tuple[str, str]]] = {
    "pruned": ("arrow-up-open", "#8a8f98"),
    "too-slow": ("arrow-up-open", colour(1)),
    "missed": ("arrow-up", colour(4)),
    "complete": ("circle", colour(0)),
    "best": ("star", colour(2)),
}


def slices(data: SweepResult) -> Figure:
    """Return the figure `figure-slices`: the objective against each key.

    Candidates without a value are drawn at the time when they were ended.
    """
    heights = {each.number: _height(data, each) for each in data.candidates}
    known = {number: height for number, height in heights.items() if height is not None}
    views: Views = {}
    for dimension in data.space if known else ():
        layout = {
            "xaxis": _axis_of(dimension),
            "yaxis": _objective_axis(data, list(known.values())),
            "hovermode": "closest",
        }
        views[dimension.key,] = view(_marks(data, dimension, known), layout)
    return Figure(
        "figure-slices",
        "The objective against each key",
        views,
        ["Key"],
        instead="No candidate has a value.",
    )


def _marks(
    data: SweepResult, dimension: Dimension, heights: Mapping[int, float]
) -> Iterator[go.Scatter]:
    """Yield marks for the candidates of each look, over their values of a key."""
    looks = {each.number: "best" if each is data.best else each.status for each in data.candidates}
    for look, (symbol, ink) in _LOOKS.items():
        drawn = [e for e in data.candidates if looks[e.number] == look and e.number in heights]
        if not drawn:
            continue
        values = [each.values[dimension.key] for each in drawn]
        yield dots(
            look.replace("-", " "),
            values if dimension.law else list(map(str, values)),
            rounded(heights[each.number] for each in drawn),
            [_about(each, data) for each in drawn],
            opacity=0.85,
            symbol=symbol,
            color=ink,
            size=15 if look == "best" else 9,
        )


def _height(data: SweepResult, each: Candidate) -> float | None:
    """Return where a candidate is drawn: at its value, or at the time when it was ended."""
    value = each.value
    if value is None and data.objective.is_time:
        value = each.ended_at_s
    elif value is None:
        value = each.reached(data.objective)
    return value if value is None or not data.objective.maximized else 100 * value


def _objective_axis(data: SweepResult, heights: Iterable[float]) -> Plot:
    if data.objective.maximized:
        return axis("test accuracy at the end (%)")
    known = [height for height in heights if height]
    if data.objective.is_time and known and max(known) > _WIDE * min(known):
        return log_axis(escaped(data.objective.words), known)
    return axis_from_0(escaped(data.objective.words))


def _axis_of(dimension: Dimension) -> Plot:
    title = escaped(dimension.key)
    if not dimension.law:
        words = [str(value) for value in dimension.values]
        ticks = [escaped(shown(value)).replace(", ", ",<br>") for value in dimension.values]
        order = {"categoryorder": "array", "categoryarray": words}
        return axis(title, type="category", tickvals=words, ticktext=ticks, **order)
    return log_axis(title, dimension.values) if dimension.law == "log" else axis(title)


def _about(each: Candidate, data: SweepResult) -> str:
    end = "" if each.ended_at_s is None else f"ended at {each.ended_at_s:.4g} s"
    value = end if each.value is None else data.objective.show(each.value)
    return "<br>".join(map(escaped, [f"candidate {each.number}: {each.status}", value, each.words]))
