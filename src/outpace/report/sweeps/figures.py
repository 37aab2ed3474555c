"""The figures of a sweep: the courses of the candidates, slices through the space, the search."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from outpace.report.figures.figure import (
    Figure,
    FigureView,
    Plot,
    Views,
    across,
    axis,
    axis_from_0,
    colour,
    rounded,
)
from outpace.report.sweeps.reading import EARLY, WORDS, Dimension, Shown, SweepData, shown
from outpace.report.words import escaped

_WIDE: Final = 8  # largest time over smallest: from here on the axis is logarithmic
_GREY: Final = "#8a8f98"
_LOOKS: Final[dict[str, tuple[str, str]]] = {  # symbol and colour by status
    "complete": ("circle", colour(0)),
    "pruned": ("triangle-up-open", _GREY),
    "too-slow": ("triangle-up-open", colour(1)),
    "missed": ("x-thin-open", colour(4)),
}
_BEST: Final[Plot] = {"symbol": "star", "size": 15, "color": colour(2)}


def courses(data: SweepData) -> Figure:
    """Return the figure `figure-courses`: each candidate against virtual time, and the front."""
    share = data.quantity == "accuracy"
    groups = {
        "complete": [each for each in data.candidates if each.status == "complete"],
        "ended early": [each for each in data.candidates if each.status in EARLY],
    }
    traces = []
    for place, (name, candidates) in enumerate(groups.items()):
        if drawn := [each for each in candidates if each.curve]:
            traces.append(_lines(name, drawn, share, colour(0) if place == 0 else _GREY))
    if ended := [each for each in groups["ended early"] if each.curve]:
        traces.append(
            {
                **_dots(
                    "where it was ended", [each.curve[-1][0] for each in ended], "x-thin", _GREY
                ),
                "y": [_scaled(each.curve[-1][1], share) for each in ended],
                "hovertext": [_about(each, data) for each in ended],
            }
        )
    if traces:
        traces.append(_front(data, share))
    if data.best is not None and data.best.curve:
        best = _lines(f"best: {data.best.number}", [data.best], share, colour(2))
        traces.append({**best, "line": {"color": colour(2), "width": 3.5}, "opacity": 1})
    layout: Plot = {
        "xaxis": axis_from_0("virtual time (s)"),
        "yaxis": axis("test accuracy (%)" if share else "training loss"),
        "hovermode": "closest",
    }
    if data.target is not None:
        layout["shapes"] = [across(_scaled(data.target, share))]
    views: Views = {(): FigureView(traces, layout)} if traces else {}
    return Figure(
        "figure-courses",
        "Courses of the candidates against virtual time",
        views,
        height=420,
        instead="The runs of this task are not evaluated.",
    )


def slices(data: SweepData) -> Figure:
    """Return the figure `figure-slices`: the objective against each key."""
    views: Views = {}
    for dimension in data.space:

        def place(each: Shown, key: str = dimension.key, law: str = dimension.law) -> Any:
            return each.values[key] if law else str(each.values[key])

        layout = {
            "xaxis": _axis_of(dimension),
            "yaxis": _objective_axis(data),
            "hovermode": "closest",
        }
        views[dimension.key,] = FigureView(_by_status(data, place), layout)
    return Figure(
        "figure-slices",
        "The objective against each key",
        views if _valued(data) else {},
        ["Key"],
        instead="No candidate has a value.",
    )


def search(data: SweepData) -> Figure:
    """Return the figure `figure-search`: candidates in their order, and the best so far."""
    traces = _by_status(data, lambda each: each.number)
    xs: list[int] = []
    ys: list[float] = []
    for each in data.candidates:
        if each.value is not None and (not ys or _better(data, each.value, ys[-1])):
            xs.append(each.number)
            ys.append(each.value)
    if xs:
        xs.append(max(each.number for each in data.candidates))
        ys.append(ys[-1])
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": "best so far",
                "x": xs,
                "y": rounded([_shown_value(data, value) for value in ys]),
                "line": {"color": colour(2), "width": 2, "shape": "hv"},
                "hoverinfo": "skip",
            }
        )
    layout = {
        "xaxis": axis("candidate"),
        "yaxis": _objective_axis(data),
        "hovermode": "closest",
    }
    return Figure(
        "figure-search",
        "Candidates in their order",
        {(): FigureView(traces, layout)} if _valued(data) else {},
        instead="No candidate has a value.",
    )


def _lines(name: str, candidates: Sequence[Shown], share: bool, ink: str) -> Plot:
    """Return one trace with the curves of candidates, with gaps between them."""
    xs: list[float | None] = []
    ys: list[float | None] = []
    texts: list[str] = []
    for each in candidates:
        xs += [*rounded(time_s for time_s, _ in each.curve), None]
        ys += [*(_scaled(value, share) for _, value in each.curve), None]
        texts += [f"{each.number}: {escaped(each.words)}"] * (len(each.curve) + 1)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": xs,
        "y": ys,
        "hovertext": texts,
        "hoverinfo": "text+x+y",
        "line": {"color": ink, "width": 1.3},
        "opacity": 0.6,
    }


def _front(data: SweepData, share: bool) -> Plot:
    """Return the best value that any candidate has reached by each time."""
    points = sorted(
        (time_s, value, each.number) for each in data.candidates for time_s, value in each.curve
    )
    xs: list[float] = []
    ys: list[float] = []
    texts: list[str] = []
    best: float | None = None
    for time_s, value, number in points:
        if best is None or (value > best if share else value < best):
            best = value
            xs.append(time_s)
            ys.append(_scaled(value, share))
            texts.append(f"first here: candidate {number}")
    if points:
        xs.append(points[-1][0])
        ys.append(ys[-1])
        texts.append("")
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "front: best of all by then",
        "x": rounded(xs),
        "y": ys,
        "hovertext": texts,
        "hoverinfo": "text+x+y",
        "line": {"color": "ink", "width": 1.6, "dash": "dot", "shape": "hv"},
    }


def _by_status(data: SweepData, place: Callable[[Shown], Any]) -> list[Plot]:
    """Return a trace for each status; candidates without a value are where they were ended."""
    traces = []
    for status, (symbol, ink) in _LOOKS.items():
        found = [
            (place(each), y, each)
            for each in data.candidates
            if each.status == status
            and each is not data.best
            and (y := _height(data, each)) is not None
        ]
        if found:
            name = WORDS.get(status, status)
            if data.of_time and status in EARLY:
                name = f"{name}: would take longer"
            dots = _dots(name, [x for x, _, _ in found], symbol, ink)
            dots["y"] = rounded([y for _, y, _ in found])
            dots["hovertext"] = [_about(each, data) for _, _, each in found]
            traces.append(dots)
    if data.best is not None and (y := _height(data, data.best)) is not None:
        dots = _dots("best", [place(data.best)], "star", colour(2))
        traces.append(
            {**dots, "y": rounded([y]), "marker": _BEST, "hovertext": [_about(data.best, data)]}
        )
    return traces


def _dots(name: str, x: Sequence[Any], symbol: str, ink: str) -> Plot:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": list(x),
        "marker": {
            "symbol": symbol,
            "color": ink,
            "size": 9,
            "opacity": 0.85,
            "line": {"width": 1.6, "color": ink},
        },
        "hoverinfo": "text",
    }


def _height(data: SweepData, each: Shown) -> float | None:
    """Return where a candidate is drawn: at its value, or at the point at which it was ended."""
    value = each.value
    if value is None and data.of_time:
        value = each.ended_at_s
    elif value is None and each.curve:
        value = each.curve[-1][1]
    return None if value is None else _shown_value(data, value)


def _shown_value(data: SweepData, value: float) -> float:
    return 100 * value if data.kind == "accuracy" else value


def _objective_axis(data: SweepData) -> Plot:
    if data.kind == "accuracy":
        return axis("test accuracy at the end (%)")
    heights = [y for each in data.candidates if (y := _height(data, each))]
    if data.of_time and heights and max(heights) > _WIDE * min(heights):
        return _log_axis(escaped(data.wanted), min(heights), max(heights))
    return axis_from_0(escaped(data.wanted))


def _axis_of(dimension: Dimension) -> Plot:
    title = escaped(dimension.key)
    if not dimension.law:
        words = [str(value) for value in dimension.values]
        ticks = [escaped(shown(value)).replace(", ", ",<br>") for value in dimension.values]
        order = {"categoryorder": "array", "categoryarray": words}
        return axis(title, type="category", tickvals=words, ticktext=ticks, **order)
    return _log_axis(title, *dimension.values) if dimension.law == "log" else axis(title)


def _log_axis(title: str, low: float, high: float) -> Plot:
    """Return a logarithmic axis; plotly's own ticks would leave powers of ten out."""
    digits = (1, 2, 5) if high < 1000 * low else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [float(f"{digit}e{power}") for power in powers for digit in digits]
    return axis(title, type="log", tickvals=ticks, ticktext=[f"{tick:g}" for tick in ticks])


def _about(each: Shown, data: SweepData) -> str:
    lines = [f"candidate {each.number}: {WORDS.get(each.status, each.status)}"]
    if each.value is not None:
        lines.append(escaped(data.show(each.value)))
    elif each.ended_at_s is not None:
        lines.append(f"ended at {each.ended_at_s:.4g} s")
    return "<br>".join([*lines, *map(escaped, each.lines)])


def _better(data: SweepData, one: float, other: float) -> bool:
    return one > other if data.maximized else one < other


def _valued(data: SweepData) -> bool:
    return any(_height(data, each) is not None for each in data.candidates)


def _scaled(value: float, share: bool) -> float:
    return float(f"{100 * value if share else value:.5g}")
