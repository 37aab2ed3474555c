"""The figures of a sweep: the courses of the candidates, slices through the space, the search."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import plotly.graph_objects as go

from outpace.report.figures.figure import (
    INK,
    Figure,
    Plot,
    Views,
    across,
    axis,
    axis_from_0,
    colour,
    dots,
    line,
    log_axis,
    rounded,
    view,
)
from outpace.report.sweeps.result import EARLY, WORDS, Candidate, Dimension, SweepResult, shown
from outpace.report.words import escaped

_WIDE: Final = 8  # largest time over smallest: from here on the axis is logarithmic
_GREY: Final = "#8a8f98"
_LOOKS: Final[dict[str, tuple[str, str]]] = {  # symbol and colour by status
    "complete": ("circle", colour(0)),
    "pruned": ("arrow-up-open", _GREY),
    "too-slow": ("arrow-up-open", colour(1)),
    "missed": ("arrow-up", colour(4)),
}


def courses(data: SweepResult) -> Figure:
    """Return the figure `figure-courses`: each candidate against virtual time, and the front."""
    share = data.objective.quantity == "accuracy"
    known = [each for each in data.candidates if each.curve]
    complete = [each for each in known if each.status == "complete"]
    early = [each for each in known if each.status in EARLY]
    traces = [
        _curves(name, candidates, share).update(line_color=ink, line_width=1.3, opacity=0.6)
        for name, candidates, ink in (
            ("complete", complete, colour(0)),
            ("ended early", early, _GREY),
        )
        if candidates
    ]
    if early:
        x, y = zip(*(each.curve[-1] for each in early), strict=True)
        hover = [_about(each, data) for each in early]
        look = {"symbol": "x-thin", "size": 9, "line": {"width": 1.6, "color": _GREY}}
        traces.append(dots("where it was ended", x, _scaled(y, share), hover, **look))
    if traces:
        traces.append(_front(known, share))
    if data.best is not None and data.best.curve:
        best = _curves(f"best: {data.best.number}", [data.best], share)
        traces.append(best.update(line_color=colour(2), line_width=3.5))
    layout: Plot = {
        "xaxis": axis_from_0("virtual time (s)"),
        "yaxis": axis("test accuracy (%)" if share else "training loss"),
        "hovermode": "closest",
    }
    if data.objective.target is not None:
        layout["shapes"] = [across(_scaled([data.objective.target.value], share)[0])]
    return Figure(
        "figure-courses",
        "Courses of the candidates against virtual time",
        {(): view(traces, layout)} if traces else {},
        height=420,
        instead="The runs of this task are not evaluated.",
    )


def slices(data: SweepResult) -> Figure:
    """Return the figure `figure-slices`: the objective against each key."""
    views: Views = {}
    for dimension in data.space:

        def place(each: Candidate, key: str = dimension.key, law: str = dimension.law) -> Any:
            return each.values[key] if law else str(each.values[key])

        layout = {
            "xaxis": _axis_of(dimension),
            "yaxis": _objective_axis(data),
            "hovermode": "closest",
        }
        views[dimension.key,] = view(_by_status(data, place), layout)
    return Figure(
        "figure-slices",
        "The objective against each key",
        views if _valued(data) else {},
        ["Key"],
        instead="No candidate has a value.",
    )


def search(data: SweepResult) -> Figure:
    """Return the figure `figure-search`: candidates in their order, and the best so far."""
    traces = _by_status(data, lambda each: each.number)
    valued = [(each.number, each.value) for each in data.candidates if each.value is not None]
    if valued:
        last = max(each.number for each in data.candidates)
        x, y = _records(valued, last, max if data.objective.maximized else min)
        y = [_shown_value(data, value) for value in y]
        best = line("best so far", x, rounded(y), 2, shape="hv")
        traces.append(best.update(hoverinfo="skip"))
    layout = {
        "xaxis": axis("candidate"),
        "yaxis": _objective_axis(data),
        "hovermode": "closest",
    }
    return Figure(
        "figure-search",
        "Candidates in their order",
        {(): view(traces, layout)} if _valued(data) else {},
        instead="No candidate has a value.",
    )


def _curves(name: str, candidates: Sequence[Candidate], share: bool) -> go.Scatter:
    """Return one trace with the curves of candidates, with gaps between them."""
    xs: list[float | None] = []
    ys: list[float | None] = []
    texts: list[str] = []
    for each in candidates:
        times, values = zip(*each.curve, strict=True)
        xs += [*rounded(times), None]
        ys += [*_scaled(values, share), None]
        texts += [f"{each.number}: {escaped(each.words)}"] * (len(each.curve) + 1)
    return line(name, xs, ys).update(hovertext=texts, hoverinfo="text+x+y")


def _front(candidates: Sequence[Candidate], share: bool) -> go.Scatter:
    """Return the best value that any candidate has reached by each time."""
    points = sorted((time_s, value) for each in candidates for time_s, value in each.curve)
    x, y = _records(points, points[-1][0], max if share else min)
    name = "front: best of all by then"
    return line(name, rounded(x), _scaled(y, share), color=INK, dash="dot", width=1.6, shape="hv")


def _records(
    points: Iterable[tuple[float, float]], end: float, best_of: Callable[[float, float], float]
) -> tuple[list[float], list[float]]:
    """Return the points that are better than all before them; the last one again at the end."""
    xs: list[float] = []
    ys: list[float] = []
    for x, y in points:
        if not ys or best_of(y, ys[-1]) != ys[-1]:
            xs.append(x)
            ys.append(y)
    return [*xs, end], [*ys, ys[-1]]


def _by_status(data: SweepResult, place: Callable[[Candidate], Any]) -> list[go.Scatter]:
    """Return marks for each status; candidates without a value are where they were ended."""
    traces = []
    drawn = [(each, y) for each in data.candidates if (y := _height(data, each)) is not None]
    for status, (symbol, ink) in _LOOKS.items():
        found = [(each, y) for each, y in drawn if each.status == status and each is not data.best]
        if found:
            later = ": would take longer" if data.objective.of_time and status in EARLY else ""
            marker = {
                "symbol": symbol,
                "color": ink,
                "size": 9,
                "line": {"width": 1.6, "color": ink},
            }
            traces.append(_marks(f"{WORDS.get(status, status)}{later}", data, found, place, marker))
    if best := [(each, y) for each, y in drawn if each is data.best]:
        star = {"symbol": "star", "size": 15, "color": colour(2)}
        traces.append(_marks("best", data, best, place, star))
    return traces


def _marks(
    name: str,
    data: SweepResult,
    found: Sequence[tuple[Candidate, float]],
    place: Callable[[Candidate], Any],
    marker: Plot,
) -> go.Scatter:
    x = [place(each) for each, _ in found]
    hover = [_about(each, data) for each, _ in found]
    return dots(name, x, rounded(y for _, y in found), hover, opacity=0.85, **marker)


def _height(data: SweepResult, each: Candidate) -> float | None:
    """Return where a candidate is drawn: at its value, or at the point at which it was ended."""
    value = each.value
    if value is None and data.objective.of_time:
        value = each.ended_at_s
    elif value is None and each.curve:
        value = each.curve[-1][1]
    return None if value is None else _shown_value(data, value)


def _shown_value(data: SweepResult, value: float) -> float:
    return 100 * value if data.objective.kind == "accuracy" else value


def _objective_axis(data: SweepResult) -> Plot:
    if data.objective.kind == "accuracy":
        return axis("test accuracy at the end (%)")
    heights = [y for each in data.candidates if (y := _height(data, each))]
    if data.objective.of_time and heights and max(heights) > _WIDE * min(heights):
        return log_axis(escaped(data.objective.words), heights)
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
    lines = [f"candidate {each.number}: {WORDS.get(each.status, each.status)}"]
    if each.value is not None:
        lines.append(escaped(data.show(each.value)))
    elif each.ended_at_s is not None:
        lines.append(f"ended at {each.ended_at_s:.4g} s")
    return "<br>".join([*lines, *map(escaped, each.lines)])


def _valued(data: SweepResult) -> bool:
    return any(_height(data, each) is not None for each in data.candidates)


def _scaled(values: Iterable[float], share: bool) -> list[Any]:
    return rounded(100 * value if share else value for value in values)
