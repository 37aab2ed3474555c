"""The page about a calibration: recorded times, and the times of the laws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from outpace.cluster.calibration.run_times import RunTimeFit
from outpace.report.figures.figure import Figure, Views, axis, line, rounded, thinned, view
from outpace.report.frame import write_page
from outpace.report.parts import Cell, Section, Table
from outpace.report.words import percent

Floats = NDArray[np.float64]
_POINTS: Final = 300  # points per curve
_MOST_WORKERS: Final = 16  # number of workers with separate curves


def write_calibration_page(
    path: Path,
    laws: Mapping[str, str],
    notes: Sequence[str],
    fit: RunTimeFit,
    tables: Sequence[Sequence[Sequence[str]]],
) -> None:
    """Write the page of a calibration.

    Args:
        path: The file; it is replaced.
        laws: The laws as text, by their keys in the cluster file.
        notes: Sentences about assumptions and about data that were left out.
        fit: The law of the run times.
        tables: How well the laws fit: tables as rows of cells, the titles first.

    Raises:
        ConfigError: The file cannot be written.
    """
    rows = [[Cell(key, look="code"), Cell(words, look="words")] for key, words in laws.items()]
    off = percent(float(np.abs(fit.goodness.order_off).max()))
    does = "describes" if fit.law else "does not describe"
    fitted = (
        f"The law {fit.tried.kind} {does} the run times: Kolmogorov "
        f"distance {fit.goodness.distance:.3f}, order statistics at most {off} off."
    )
    if fit.law is None:
        fitted += " The recorded times are replayed."
    write_page(
        path,
        title=f"Outpace: calibration of {path.stem}",
        heading=f"Calibration: {path.stem}",
        what=laws["from"],
        findings=[fitted, *(f"{note[:1].upper()}{note[1:]}." for note in notes)],
        sections=[
            Section(
                "laws",
                "The cluster file",
                [Table("laws-table", ["Key", Cell("Law", look="words")], rows)],
            ),
            Section(
                "run-times",
                "Run times of the workers",
                [_distribution(fit)],
                "The share of the run times up to each duration, as recorded and as the law draws "
                "them. A run time is the time that the worker itself needs in an iteration, "
                "without waits and transfers.",
            ),
            Section(
                "numbers",
                "Goodness of fit",
                [Table(f"goodness-{n}", rows[0], rows[1:]) for n, rows in enumerate(tables)],
            ),
        ],
    )


def _distribution(fit: RunTimeFit) -> Figure:
    """Return the figure `figure-run-times`: recorded and drawn distribution functions."""
    recorded, drawn = fit.recorded, fit.goodness.drawn
    named = f"rejected law: {fit.tried.kind}" if fit.law is None else f"fitted: {fit.law.kind}"
    columns = {"all workers": slice(None)}
    if 1 < recorded.shape[1] <= _MOST_WORKERS:
        columns |= {f"worker {n}": slice(n, n + 1) for n in range(recorded.shape[1])}
    layout = {
        "xaxis": axis("run time (s)"),
        "yaxis": axis("share of the times up to this", range=[0, 1]),
        "hovermode": "closest",
    }
    views: Views = {}
    for name, column in columns.items():
        one = _curve("recorded", recorded[:, column], 0)
        views[name,] = view([one, _curve(named, drawn[:, column], 1, "dash")], layout)
    alt = "Distribution of recorded and fitted run times"
    return Figure("figure-run-times", alt, views, ["Of"])


def _curve(name: str, times: Floats, place: int, dash: str = "solid") -> go.Scatter:
    ordered = np.sort(times, axis=None)
    kept = thinned(len(ordered), _POINTS)
    share = (np.array(kept) + 1) / len(ordered)
    return line(name, rounded(ordered[kept]), rounded(share, 4), place, dash=dash)
