"""Parts that all figures share, and a figure with buttons that switch its views.

Traces and layouts are plotly's objects, which refuse settings that plotly.js does not know. Fonts
and the colours of grid and text are set by the page, for light and dark (report.js).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import plotly.graph_objects as go

Plot = dict[str, Any]  # plain data for plotly

# The palette of Okabe and Ito, which colour-blind readers can distinguish, without yellow and
# black, because each of these is invisible on one of the two backgrounds. From the eighth run on,
# lines are dashed differently.
_COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8a8f98")
_DASHES: Final = ("solid", "dash", "dot", "dashdot")

INK: Final = "#7d8590"  # colour of lines that belong to no run; visible on both backgrounds

# Activities of a worker. The colour of waiting stands out.
PHASES: Final = {"compute": "#6b8fbf", "communicate": "#b9c6d8", "wait": "#e4572e"}

_ALIKE: Final = 5  # ratio of the largest to the smallest value up to which an axis is linear
NO_TRACE: Final = "There is no readable trace with a finished iteration."


def colour(run: int) -> str:
    """Return the colour of the run with this index, which is the same in every figure."""
    return _COLOURS[run % len(_COLOURS)]


def faint(run: int) -> str:
    """Return the colour of the run with this index, mostly transparent."""
    red, green, blue = bytes.fromhex(colour(run)[1:])
    return f"rgba({red},{green},{blue},0.18)"


def dash(run: int) -> str:
    return _DASHES[run // len(_COLOURS) % len(_DASHES)]


def rounded(values: Iterable[float | None], digits: int = 5) -> list[Any]:
    """Round to `digits` significant digits, which keeps the page small; NaN is None."""
    known = (None if value is None or math.isnan(value) else value for value in values)
    return [None if value is None else float(f"{value:.{digits}g}") for value in known]


def thinned(count: int, most: int) -> list[int]:
    """Return at most `most` evenly spaced indices below `count`, with the first and the last."""
    kept: list[int] = np.linspace(0, count - 1, min(count, most)).round().astype(int).tolist()
    return kept


def line(name: str, x: Sequence[Any], y: Sequence[Any], place: int = 0, **style: Any) -> go.Scatter:
    """Return a line in the colour of the run with the index `place`.

    Args:
        style: plotly's settings of the line, such as `width` and `dash`.
    """
    look = {"color": colour(place), "dash": dash(place), "width": 2, **style}
    return go.Scatter(mode="lines", name=name, x=x, y=y, line=look)


def dots(
    name: str, x: Sequence[Any], y: Sequence[Any], hover: Sequence[str] | None, **marker: Any
) -> go.Scatter:
    """Return marks with texts, if there are any, that appear when the pointer is on the mark.

    Args:
        marker: plotly's settings of the marks, such as `size` and `symbol`.
    """
    texts = {} if hover is None else {"hovertext": hover, "hoverinfo": "text"}
    return go.Scatter(mode="markers", name=name, x=x, y=y, marker=marker, **texts)


def bars(
    name: str, x: Sequence[Any], y: Sequence[Any], hover: Sequence[str], marker: Plot, **more: Any
) -> go.Bar:
    """Return bars, each with a text that is shown when the pointer is on it."""
    return go.Bar(name=name, x=x, y=y, marker=marker, hovertext=hover, hoverinfo="text", **more)


def across(y: float, **more: Any) -> Plot:
    """Return a dotted horizontal line at `y` across the whole figure, as a plotly shape."""
    return {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": y,
        "y1": y,
        "line": {"color": "#8a8f98", "width": 1.2, "dash": "dot"},
        "layer": "below",
        **more,
    }


def down(x: float) -> Plot:
    """Return a dashed vertical line at `x` across the whole figure, as a plotly shape."""
    line = {"color": "#b8442c", "width": 1.2, "dash": "dash"}
    return {
        **across(0.0, line=line),
        "xref": "x",
        "yref": "paper",
        "x0": x,
        "x1": x,
        "y0": 0,
        "y1": 1,
    }


def axis(title: str, **more: Any) -> Plot:
    return {"title": {"text": title}, "zeroline": False, "automargin": True, **more}


def axis_from_0(title: str, **more: Any) -> Plot:
    return axis(title, hoverformat=".4~g", rangemode="tozero", **more)


def log_axis(title: str, values: Iterable[float]) -> Plot:
    """Return a logarithmic axis for these positive values, on which all tick labels differ.

    plotly's own labels between powers of ten have only one digit, or the powers are left out. If
    the values are similar, the axis is linear.
    """
    known = [value for value in values if value > 0] or [1.0]
    if max(known) < _ALIKE * min(known):
        return axis(title, hoverformat=".4~g")
    low, high = math.log10(min(known)), math.log10(max(known))
    digits = (1, 2, 5) if high - low < 3 else (1,)
    powers = range(math.floor(low), math.ceil(high) + 1)
    ticks = [float(f"{digit}e{power}") for power in powers for digit in digits]
    return axis(title, type="log", tickvals=ticks, ticktext=[f"{tick:g}" for tick in ticks])


def lanes(labels: Sequence[str], title: str = "", margin: float = 0.5) -> Plot:
    """Return a vertical axis with a lane for each label, the first one on top."""
    return axis(
        title,
        tickvals=list(range(len(labels))),
        ticktext=list(labels),
        range=[len(labels) - 1 + margin, -margin],
        showgrid=False,
    )


@dataclass(frozen=True)
class FigureView:
    """One view of a figure as plain data for plotly.js, with a note below it."""

    traces: list[Plot]
    layout: Plot
    note: str = ""


def view(traces: Iterable[Any], layout: Plot, note: str = "") -> FigureView:
    """Return a view of plotly's traces.

    Args:
        layout: settings of `plotly.graph_objects.Layout`.

    Raises:
        ValueError: if plotly has no such setting, or not with this value.
    """
    plain = go.Layout(layout).to_plotly_json()
    return FigureView([trace.to_plotly_json() for trace in traces], plain, note)


Views = dict[tuple[str, ...], FigureView]


@dataclass(frozen=True)
class Figure:
    """A figure with buttons, or a menu if there are many options, for each of its choices.

    Attributes:
        views: a view for every combination of options, one of each choice.
        choices: a label for each choice.
        height: height of the figure in pixels.
        tall: True: the height is also used on a phone.
        instead: the text that is shown if there are no views.
    """

    kind: ClassVar = "figure"
    id: str
    alt: str
    views: Views
    choices: Sequence[str] = ()
    height: int = 380
    tall: bool = False
    instead: str = ""

    @property
    def options(self) -> list[list[str]]:
        """The options of each choice."""
        return [list(dict.fromkeys(parts)) for parts in zip(*self.views, strict=True)]

    def plain(self) -> Plot:
        """Return the data for report.js. A view's key is the indices of its options: `0,2`."""
        options = self.options
        views = {}
        for key, view in self.views.items():
            places = [str(options[place].index(option)) for place, option in enumerate(key)]
            parts = {"data": view.traces, "layout": view.layout, "note": view.note}
            views[",".join(places)] = parts
        return {
            "choices": len(self.choices),
            "height": self.height,
            "tall": self.tall,
            "views": views,
        }
