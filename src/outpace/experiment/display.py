"""Shows results in Python: in words, as a table with a small picture, as a plotly figure."""

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
    "time_s": "{clock} time (s)",
    "updates": "updates of the parameters",
    "gradients": "gradients applied",
}
_WIDTH, _HEIGHT, _MARGIN = 360, 120, 6  # of the small picture, in pixels
_STYLE: Final = "text-align:right;padding:2px 10px"


class Evaluated(NamedTuple):
    """The evaluations of a run; runs of one variant have the same `place`, and so colour."""

    name: str
    place: int
    metrics: pa.Table


def clock_of(summary: Mapping[str, Any]) -> tuple[str, float | None]:
    """Return which time a run has, wall or virtual, and its length in seconds."""
    kind = "wall" if "wall_time_s" in summary else "virtual"
    return kind, summary.get(f"{kind}_time_s")


def in_words(summary: Mapping[str, Any]) -> str:
    """Return the main numbers of a run in one line."""
    parts = [str(summary["status"])]
    kind, length_s = clock_of(summary)
    if length_s is not None:
        parts.append(f"{length_s:.4g} s of {kind} time")
    if (gradients := summary.get("gradients_applied")) is not None:
        parts.append(f"{gradients:,} gradients")
    if (accuracy := summary.get("accuracy")) is not None:
        parts.append(f"accuracy {accuracy:.4f}")
    elif (loss := summary.get("train_loss")) is not None:
        parts.append(f"training loss {loss:.4g}")
    return ", ".join(parts)


def cells(summary: Mapping[str, Any]) -> dict[str, str]:
    """Return the main numbers of a run by title; missing ones are empty."""
    kind, length_s = clock_of(summary)
    return {
        "status": str(summary["status"]),
        f"{kind} time (s)": _number(length_s, ".2f"),
        "gradients": _number(summary.get("gradients_applied"), ",d"),
        "staleness": _number(summary.get("staleness", {}).get("mean"), ".2f"),
        "waiting (s)": _number(summary.get("seconds", {}).get("wait"), ".2f"),
        "training loss": _number(summary.get("train_loss"), ".4f"),
        "accuracy": _number(summary.get("accuracy"), ".4f"),
    }


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def table(rows: Sequence[tuple[str, Mapping[str, str]]]) -> str:
    """Return an HTML table with a named row for each mapping from title to text."""
    titles = list(dict.fromkeys(title for _, row in rows for title in row))
    head = "".join(f'<th style="{_STYLE}">{escape(title)}</th>' for title in ("", *titles))
    body = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th>'
        + "".join(f'<td style="{_STYLE}">{escape(row.get(title, ""))}</td>' for title in titles)
        + "</tr>"
        for name, row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def small_picture(runs: Sequence[Evaluated]) -> str:
    """Return the progress of the runs as an SVG picture; empty where they were evaluated once."""
    quantity = _quantity_of(runs)
    curves = [(run, _points(run, "time_s", quantity)) for run in runs]
    curves = [(run, points) for run, points in curves if len(points) > 1]
    if not curves:
        return ""
    xs, ys = zip(*(point for _, points in curves for point in points), strict=True)
    right, low, high = max(xs) or 1.0, min(ys), max(ys)

    def place(x: float, y: float) -> str:
        across = _MARGIN + (_WIDTH - 2 * _MARGIN) * x / right
        down = _MARGIN + (_HEIGHT - 2 * _MARGIN) * (high - y) / ((high - low) or 1.0)
        return f"{across:.1f},{down:.1f}"

    from outpace.report.figures.figure import colour

    lines = "".join(
        f'<polyline fill="none" stroke="{colour(run.place)}" stroke-width="1.5" '
        f'points="{" ".join(place(x, y) for x, y in points)}"><title>{escape(run.name)}</title>'
        "</polyline>"
        for run, points in curves
    )
    title = f"{_QUANTITIES[quantity]}, from {low:.4g} to {high:.4g}, in {right:.4g} s"
    return (
        f'<figure style="margin:4px 0"><svg width="{_WIDTH}" height="{_HEIGHT}" role="img" '
        f'aria-label="{title}">{lines}</svg><figcaption>{title}</figcaption></figure>'
    )


def figure(
    runs: Sequence[Evaluated], quantity: str | None, against: str, summary: Mapping[str, Any]
) -> Figure:
    """Return a plotly figure of the progress of runs.

    Args:
        quantity: a column of the metrics; None: the accuracy, or the training loss without one.
        against: the column of the horizontal axis.
        summary: of one of the runs.

    Raises:
        ConfigError: if there is no such column, or it is empty.
    """
    from plotly.graph_objects import Figure

    from outpace.report.figures.figure import axis, axis_from_0, line

    quantity = quantity or _quantity_of(runs)
    _require(quantity, "quantity", _QUANTITIES)
    _require(against, "against", _AGAINST)
    drawn = []
    for run in runs:
        if points := _points(run, against, quantity):
            xs, ys = zip(*points, strict=True)
            drawn.append(line(run.name, xs, ys, run.place).update(mode="lines+markers"))
    if not drawn:
        raise ConfigError(f"plot: these runs have no {_QUANTITIES[quantity]}")
    layout = {
        "xaxis": axis_from_0(_AGAINST[against].format(clock=clock_of(summary)[0])),
        "yaxis": axis(_QUANTITIES[quantity]),
        "showlegend": len(drawn) > 1,
        "height": 400,
        "template": "plotly_white",
    }
    return Figure(data=drawn, layout=layout)


def _require(value: str, name: str, known: Mapping[str, str]) -> None:
    if value not in known:
        raise ConfigError(f"plot: {name} must be one of {', '.join(known)}, not {value!r}")


def _quantity_of(runs: Sequence[Evaluated]) -> str:
    """Return the accuracy, or the first quantity that some run was evaluated for."""
    for quantity in _QUANTITIES:
        if any(run.metrics[quantity].null_count < len(run.metrics) for run in runs):
            return quantity
    return "accuracy"


def _points(run: Evaluated, x: str, y: str) -> list[tuple[float, float]]:
    columns = (run.metrics[name].to_pylist() for name in (x, y))
    return [(a, b) for a, b in zip(*columns, strict=True) if a is not None and b is not None]


def pandas() -> Any:
    """Return the package pandas. Raises ConfigError if it is not installed."""
    try:
        import pandas
    except ModuleNotFoundError as error:
        if error.name != "pandas":  # it is installed, and something that it needs is not
            raise
        raise ConfigError(
            "to_pandas needs pandas, which is not installed: pip install 'outpace[pandas]'"
        ) from None
    return pandas


def flat(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers and texts of a summary: those of a mapping as `staleness.mean`."""
    found: dict[str, Any] = {}
    for key, value in summary.items():
        if isinstance(value, Mapping) and key != "histogram":
            found |= {f"{key}.{inner}": each for inner, each in flat(value).items()}
        elif not isinstance(value, Mapping | list):
            found[key] = value
    return found
