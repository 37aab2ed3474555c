"""Pictures of what is in the paper's figures 1, 2 and 3a."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from benchmarks.papers.bdsgd.cut_offs.clusters import SPEEDS
from benchmarks.papers.bdsgd.cut_offs.figures import SHOWN

PICTURE: Final = "figures-1-to-3.html"
_CHEN: Final = 2051
_COLOURS: Final = {
    "wait for all": "#009e73",
    "Chen": "#e69f00",
    "Elfving": "#cc79a7",
    "BDSGD": "#d55e00",
}
_BEST: Final = "#0072b2"
_TRUE: Final = "#222222"
Plain = Mapping[str, Any]


def draw(found: Plain, out: Path) -> Path:
    """Write a page with those figures that are in `found`; return its path."""
    figures = []
    if one := found.get("figure 1"):
        figures.append(_figure_1(one))
    if "figure 2" in found:
        figures += [_run_times(found["figure 2"]), _figure_2(found["figure 2"])]
    if "figure 3a" in found:
        figures.append(_figure_3a(found["figure 3a"]))
    page = "\n".join(
        figure.to_html(full_html=False, include_plotlyjs=number == 0)
        for number, figure in enumerate(figures)
    )
    (out / PICTURE).write_text(
        f'<!doctype html><meta charset="utf-8"><title>Figures 1 to 3</title>\n{page}\n', "utf-8"
    )
    return out / PICTURE


def _subplots(title: str, height: int, **shape: Any) -> Any:
    from plotly.subplots import make_subplots

    figure = make_subplots(**shape)
    figure.update_layout(
        title=title,
        height=height,
        template="plotly_white",
        legend={
            "orientation": "h",
            "yref": "container",
            "y": 0.97,
            "yanchor": "top",
            "x": 1,
            "xanchor": "right",
        },
    )
    return figure


def _figure_1(networks: Plain) -> Any:
    titles = [f"{speed} s: best at {_peak(one)}" for speed, one in networks.items()]
    figure = _subplots(
        "Figure 1: mean throughput if all workers beyond the cut-off are ignored",
        420,
        cols=len(networks),
        subplot_titles=titles,
    )
    for column, (speed, one) in enumerate(networks.items(), 1):
        counts = np.arange(1, len(one["throughput"]) + 1)
        figure.add_scatter(
            x=counts, y=one["throughput"], showlegend=False, line_color=_BEST, row=1, col=column
        )
        for cut_off, name, place in (
            (SPEEDS[speed].oracle, "the paper's oracle", "bottom left"),
            (_CHEN, "Chen", "top left"),
        ):
            figure.add_vline(
                cut_off,
                line={"dash": "dot", "width": 1},
                annotation={"text": f"{name}: {cut_off}", "xanchor": "right", "xshift": -4},
                annotation_position=place,
                row=1,
                col=column,
            )
    figure.update_xaxes(title="cut-off, workers", row=1)
    figure.update_yaxes(title="gradients per second", row=1, col=1)
    return figure


def _peak(one: Plain) -> int:
    return int(np.argmax(one["throughput"])) + 1


def _run_times(found: Plain) -> Any:
    figure = _subplots(
        "Figure 2: run times of all workers of cluster i in five iterations",
        330,
        cols=len(SHOWN),
        shared_yaxes=True,
        subplot_titles=[f"iteration {t}" for t in SHOWN],
    )
    for column, t in enumerate(SHOWN, 1):
        figure.add_scatter(
            y=found["run times"][str(t)],
            mode="markers",
            marker={"size": 3, "color": _TRUE},
            showlegend=False,
            row=1,
            col=column,
        )
    figure.update_xaxes(title="worker", row=1)
    figure.update_yaxes(title="seconds", rangemode="tozero", row=1, col=1)
    return figure


def _figure_2(found: Plain) -> Any:
    panels = {
        "throughput": "gradients per second",
        "count": "workers awaited",
        "saved_s": "seconds saved over waiting for all",
    }
    figure = _subplots(
        "Figure 2: cluster i, iteration by iteration",
        900,
        rows=len(panels),
        shared_xaxes=True,
        vertical_spacing=0.05,
    )
    for row, (entry, title) in enumerate(panels.items(), 1):
        if entry in found["oracle"]:
            best = {"y": found["oracle"][entry], "name": "highest possible"}
            _line(figure, row, _BEST, **best)
        for name, rule in found["rules"].items():
            _line(figure, row, _COLOURS[name], y=rule[entry], name=name)
        figure.update_yaxes(title=title, row=row, col=1)
    figure.update_xaxes(title="iteration", row=len(panels), col=1)
    return figure


def _line(figure: Any, row: int, colour: str, *, y: Any, name: str) -> None:
    figure.add_scatter(
        x=np.arange(1, len(y) + 1),
        y=y,
        name=name,
        legendgroup=name,
        showlegend=row == 1,
        line={"color": colour, "width": 1.5},
        row=row,
        col=1,
    )


def _figure_3a(found: Plain) -> Any:
    figure = _subplots(
        "Figure 3a: run times in ascending order, cluster i (band: 5 to 95 % of the draws)",
        430,
        cols=len(found),
        subplot_titles=[f"iteration {t}: cut-off {one['cut-off']}" for t, one in found.items()],
    )
    for column, one in enumerate(found.values(), 1):
        workers = np.arange(1, len(one["true"]) + 1)
        place = {"row": 1, "col": column, "x": workers}
        quiet = {"mode": "lines", "line": {"width": 0}, "showlegend": False, "hoverinfo": "skip"}
        figure.add_scatter(y=one["low"], **quiet, **place)
        figure.add_scatter(
            y=one["high"], fill="tonexty", fillcolor="rgba(213, 94, 0, 0.2)", **quiet, **place
        )
        lines = (("true", _TRUE), ("predicted", _COLOURS["BDSGD"]))
        for name, colour in lines:
            figure.add_scatter(
                y=one[name], name=name, showlegend=column == 1, line_color=colour, **place
            )
        figure.add_vline(one["cut-off"], line={"color": "red", "width": 1}, row=1, col=column)
    figure.update_xaxes(title="worker, by run time", row=1)
    figure.update_yaxes(title="seconds", row=1, col=1)
    return figure
