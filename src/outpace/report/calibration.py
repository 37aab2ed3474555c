"""The page about a calibration: recorded times, and times by the laws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from outpace.cluster.calibration.all_reduces import AllReduceFit
from outpace.cluster.calibration.run_times import RunTimeFit
from outpace.report.figures.figure import Figure, Views, axis, line, rounded, thinned, view
from outpace.report.frame import write_page
from outpace.report.parts import Cell, Section, Table
from outpace.report.words import percent

Floats = NDArray[np.float64]
_POINTS: Final = 300  # per curve
_MOST_WORKERS: Final = 16  # with curves of their own


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """What terminal and page show of a calibration.

    Args:
        laws: Keys of the cluster file, and their laws in words.
        all_reduces: None if they were not measured.
        without_servers: Names of the runs that `all_reduces` come from.
    """

    name: str
    laws: Sequence[tuple[str, str]]
    notes: Sequence[str]
    compute: RunTimeFit
    all_reduces: AllReduceFit | None = None
    without_servers: Sequence[str] = ()

    def compute_rows(self) -> list[list[str]]:
        """Return the table of the goodness of fit: titles, then a row per worker and place.

        If the recorded times are replayed, it is the table of the best law, which was rejected.
        """
        goodness, recorded = self.compute.goodness, self.compute.recorded
        fitted = "rejected law s" if self.compute.law is None else "fitted s"
        means = recorded.mean(axis=0), goodness.drawn.mean(axis=0), goodness.of_worker
        rows = [["run times", "recorded s", fitted, "error %", "Kolmogorov"]]
        for worker, (one, other, distance) in enumerate(zip(*means, strict=True)):
            rows.append([f"worker {worker}", *_compared(one, other), f"{distance:.3f}"])
        whole = _compared(recorded.mean(), goodness.drawn.mean())
        rows.append(["all", *whole, f"{goodness.distance:.3f}"])
        orders = zip(goodness.recorded_order, goodness.fitted_order, strict=True)
        for place, (one, other) in enumerate(orders):
            rows.append([f"place {place + 1} of {recorded.shape[1]}", *_compared(one, other), ""])
        return rows

    def all_reduce_rows(self) -> list[list[str]]:
        """Return the table of the all-reduces of the training; empty if none were measured."""
        fit = self.all_reduces
        if fit is None:
            return []
        rows = [["all-reduces", "recorded s", "fitted s", "error %", "bytes"]]
        for name, (size_bytes, *times) in zip(self.without_servers, fit.training, strict=True):
            cells = _compared(*times)
            cells[-1] = cells[-1] if fit.training_testable else "not testable"
            rows.append([name, *cells, f"{size_bytes:.0f}"])
        return rows


def write_calibration_page(shown: Shown, path: Path) -> None:
    """Write the page to `path`. Raises ConfigError if the file cannot be written."""
    laws = [[Cell(key, look="code"), Cell(words, look="words")] for key, words in shown.laws]
    sections = [
        Section(
            "laws",
            "The cluster file",
            [Table("laws-table", ["Key", Cell("Law", look="words")], laws)],
        ),
        Section(
            "run-times",
            "Run times of the workers",
            [_distribution(shown)],
            "The share of the run times up to each duration, as recorded and as the law draws them."
            " A run time is the time that the worker itself needs in an iteration, without waits "
            "and transfers.",
        ),
    ]
    fit = shown.compute
    off = percent(float(np.abs(fit.goodness.order_off).max()))
    does = "describes" if fit.law else "does not describe"
    fitted = (
        f"The law {fit.tried.kind} {does} the run times: Kolmogorov "
        f"distance {fit.goodness.distance:.3f}, order statistics at most {off} off."
    )
    if fit.law is None:
        fitted += " The recorded times are replayed."
    head, *rows = shown.compute_rows()
    tables = [Table("goodness", head, rows)]
    if shown.all_reduces is not None:
        head, *rows = shown.all_reduce_rows()
        tables.append(Table("all-reduce-times", head, rows))
    write_page(
        path,
        title=f"Outpace: calibration of {shown.name}",
        heading=f"Calibration: {shown.name}",
        what=dict(shown.laws)["from"],
        findings=[fitted, *(f"{note[:1].upper()}{note[1:]}." for note in shown.notes)],
        sections=[
            *sections,
            Section("numbers", "Goodness of fit", tables),
        ],
    )


def _compared(recorded: float, fitted: float) -> list[str]:
    """Return cells with a recorded value, a fitted one, and the error in percent."""
    return [f"{recorded:.5g}", f"{fitted:.5g}", f"{100 * (fitted / recorded - 1):+.2f}"]


def _distribution(shown: Shown) -> Figure:
    """Return the figure `figure-run-times`: recorded and drawn distribution functions."""
    recorded, drawn = shown.compute.recorded, shown.compute.goodness.drawn
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
        views[name,] = view([one, _curve(_law_name(shown), drawn[:, column], 1, "dash")], layout)
    alt = "Distribution of recorded and fitted run times"
    return Figure("figure-run-times", alt, views, ["Of"])


def _law_name(shown: Shown) -> str:
    """Return the name of the curve of the law."""
    fit = shown.compute
    return f"rejected law: {fit.tried.kind}" if fit.law is None else f"fitted: {fit.law.kind}"


def _curve(name: str, times: Floats, place: int, dash: str = "solid") -> go.Scatter:
    ordered = np.sort(times, axis=None)
    kept = thinned(len(ordered), _POINTS)
    share = (np.array(kept) + 1) / len(ordered)
    return line(name, rounded(ordered[kept]), rounded(share, 4), place, dash=dash)
