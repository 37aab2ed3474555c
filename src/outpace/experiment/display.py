"""Shows results in Python: in a line, and as a plotly figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def in_words(summary: Mapping[str, Any]) -> str:
    """Return the main numbers of a run in one line."""
    known = {
        **summary,
        "staleness.mean": (summary.get("staleness") or {}).get("mean"),
        "seconds.wait": (summary.get("seconds") or {}).get("wait"),
    }
    return ", ".join(
        f"{title} {value:.4g}" if isinstance(value, float) else f"{title} {value}"
        for key, title in _SHOWN.items()
        if (value := known.get(key)) is not None
    )


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
