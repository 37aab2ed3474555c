"""Shows results in Python: in a line, as a table, as a plotly figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from outpace.errors import ConfigError

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_QUANTITIES: Final = {
    "accuracy": "test accuracy",
    "train_loss": "training loss",
    "test_loss": "test loss",
    "batch_loss": "loss of the batches",
}
_AGAINST: Final = {
    "time_s": "time (s)",
    "updates": "updates of the parameters",
    "gradients": "gradients applied",
}
_SHOWN: Final = {
    "status": "status",
    "virtual_time_s": "virtual time (s)",
    "wall_time_s": "wall time (s)",
    "gradients_applied": "gradients",
    "staleness.mean": "staleness",
    "seconds.wait": "waiting (s)",
    "train_loss": "training loss",
    "accuracy": "accuracy",
}


class Curve(NamedTuple):
    """The evaluations of a run; runs of one variant have the same `place`, and so colour."""

    name: str
    place: int
    metrics: pa.Table


def numbers(summary: Mapping[str, Any]) -> dict[str, str]:
    """Return the main numbers of a run by title."""
    known = {
        **summary,
        "staleness.mean": (summary.get("staleness") or {}).get("mean"),
        "seconds.wait": (summary.get("seconds") or {}).get("wait"),
    }
    return {
        title: f"{value:.4g}" if isinstance(value, float) else str(value)
        for key, title in _SHOWN.items()
        if (value := known.get(key)) is not None
    }


def in_words(summary: Mapping[str, Any]) -> str:
    """Return the main numbers of a run in one line."""
    return ", ".join(f"{title} {text}" for title, text in numbers(summary).items())


def table(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Return an HTML table, which a notebook shows, with a row for each name and summary."""
    shown = [(name, numbers(summary)) for name, summary in rows]
    titles = [title for title in _SHOWN.values() if any(title in row for _, row in shown)]
    lines = [["", *titles], *([name, *(row.get(t, "") for t in titles)] for name, row in shown)]
    cells = ("".join(f"<td>{escape(text)}</td>" for text in line) for line in lines)
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


def figure(curves: Sequence[Curve], quantity: str | None, against: str) -> Figure:
    """Return a plotly figure of the progress of runs.

    Args:
        quantity: a column of the metrics; None: the accuracy, or the training loss without one.
        against: the column of the horizontal axis.

    Raises:
        ConfigError: if there is no such column, or it is empty.
    """
    from plotly.graph_objects import Figure

    from outpace.report.figures.figure import axis, axis_from_0, line

    has_accuracy = any(each.metrics["accuracy"].null_count < len(each.metrics) for each in curves)
    quantity = quantity or ("accuracy" if has_accuracy else "train_loss")
    for name, value, known in (("quantity", quantity, _QUANTITIES), ("against", against, _AGAINST)):
        if value not in known:
            raise ConfigError(f"plot: {name} must be one of {', '.join(known)}, not {value!r}")
    drawn = []
    for each in curves:
        points = each.metrics.select([against, quantity]).drop_null()
        if len(points):
            xs, ys = (points[name].to_pylist() for name in (against, quantity))
            drawn.append(line(each.name, xs, ys, each.place).update(mode="lines+markers"))
    if not drawn:
        raise ConfigError(f"plot: these runs have no {_QUANTITIES[quantity]}")
    layout = {
        "xaxis": axis_from_0(_AGAINST[against]),
        "yaxis": axis(_QUANTITIES[quantity]),
        "showlegend": len(drawn) > 1,
        "template": "plotly_white",
    }
    return Figure(data=drawn, layout=layout)
