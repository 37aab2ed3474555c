"""Pictures of cut-offs beside the oracle's, and of their share of its throughput."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from benchmarks.papers.bdsgd.cut_offs.goals import Rows

PICTURE: Final = "cut-offs.html"
# Drawn at first; the others at a click on their names.
SHOWN: Final = ("last-5", "deep-markov count", "pooled replan")
_BINS: Final = 50
_COLOURS: Final = ("#e69f00", "#009e73", "#cc79a7")
_ORACLE: Final = "#222222"
_QUIET: Final = "#8a8f98"


def draw(results: Mapping[str, Rows], out: Path) -> Path:
    """Write a page with three figures for each cluster and observation; return its path."""
    figures = [
        _figure(title, rows).to_html(
            full_html=False, include_plotlyjs=number == 0, default_height="560px"
        )
        for number, (title, rows) in enumerate(results.items())
    ]
    page = "\n".join(figures)
    (out / PICTURE).write_text(
        f'<!doctype html><meta charset="utf-8"><title>Cut-offs</title>\n{page}\n', "utf-8"
    )
    return out / PICTURE


def _figure(title: str, rows: Rows) -> Any:
    from plotly.subplots import make_subplots

    figure = make_subplots(
        cols=3,
        column_widths=[0.36, 0.32, 0.32],
        horizontal_spacing=0.11,
        subplot_titles=("cut-offs", "cut-off less the oracle's", "Ω, % of the oracle's"),
    )
    if rows:
        oracles = next(iter(rows.values())).oracles
        shown = [row for rule, row in rows.items() if rule in SHOWN] or list(rows.values())
        edges = _edges([oracles, *(row.cut_offs for row in shown)])
        apart = _edges([row.apart for row in shown])
        _histogram(figure, 1, edges, oracles, "oracle", _ORACLE, fill="tozeroy")
        for rule, row in rows.items():
            look = {"visible": True if rule in SHOWN else "legendonly", "legendgroup": rule}
            _histogram(figure, 1, edges, row.cut_offs, rule, _colour(rule), **look)
            look["showlegend"] = False
            _histogram(figure, 2, apart, row.apart, rule, _colour(rule), **look)
        _bars(figure, rows)
    figure.update_layout(
        title=title,
        template="plotly_white",
        margin={"t": 80, "b": 20, "l": 50, "r": 20},
        legend={"orientation": "h", "y": -0.18},
    )
    figure.update_xaxes(title="gradients", col=1)
    figure.update_xaxes(title="gradients", col=2)
    figure.update_yaxes(title="% of the iterations", col=1)
    return figure


def _bars(figure: Any, rows: Rows) -> None:
    rules = list(rows)[::-1]
    values = [rows[rule].of_oracle for rule in rules]
    figure.add_bar(
        x=values,
        y=rules,
        orientation="h",
        text=[f"{rows[rule].of_oracle:.2f} ± {rows[rule].error:.2f}" for rule in rules],
        textposition="outside",
        textfont={"size": 10},
        marker_color=[_colour(rule) for rule in rules],
        showlegend=False,
        row=1,
        col=3,
    )
    low = max(0.0, min(values) - 5)
    figure.update_xaxes(range=[low, 100 + 0.4 * (100 - low)], col=3)
    figure.update_yaxes(tickfont={"size": 10}, dtick=1, col=3)


def _histogram(
    figure: Any,
    column: int,
    edges: Any,
    often: Mapping[int, int],
    name: str,
    colour: str,
    **look: Any,
) -> None:
    """Count values in bins, those outside the range in the outermost ones."""
    values = np.clip(list(often), edges[0], edges[-1])
    heights, _ = np.histogram(values, edges, weights=list(often.values()))
    figure.add_scatter(
        x=(edges[:-1] + edges[1:]) / 2,
        y=100 * heights / sum(often.values()),
        name=name,
        mode="lines",
        line={"shape": "hvh", "color": colour},
        row=1,
        col=column,
        **look,
    )


def _edges(several: list[dict[int, int]]) -> Any:
    """Return edges of bins of equally many integers, with 0 in the middle of one."""
    low = min(min(often) for often in several)
    high = max(max(often) for often in several)
    width = -(-(high - low + 1) // _BINS) | 1
    first = (low + width // 2) // width * width
    return np.arange(first, high + 1.5 * width, width) - width / 2


def _colour(rule: str) -> str:
    return _COLOURS[SHOWN.index(rule)] if rule in SHOWN else _QUIET
