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
from outpace.cluster.calibration.network import NetworkFit
from outpace.cluster.calibration.run_times import RunTimeFit
from outpace.cluster.calibration.service import ServiceTimes
from outpace.report.figures.figure import (
    Figure,
    Plot,
    Views,
    axis,
    axis_from_0,
    colour,
    dots,
    line,
    log_axis,
    rounded,
    thinned,
    view,
)
from outpace.report.frame import write_page
from outpace.report.parts import Cell, Section, Table
from outpace.report.words import percent, size

Floats = NDArray[np.float64]
_POINTS: Final = 300  # per curve
_MOST_WORKERS: Final = 16  # with curves of their own


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """What terminal and page show of a calibration.

    Args:
        laws: Keys of the cluster file, and their laws in words.
        network, service, all_reduces: None if they were not measured.
        without_servers: Names of the runs that `all_reduces` come from.
    """

    name: str
    laws: Sequence[tuple[str, str]]
    notes: Sequence[str]
    compute: RunTimeFit
    network: NetworkFit | None = None
    service: ServiceTimes | None = None
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
        Section(
            "order",
            "From the fastest to the slowest",
            [_order(shown)],
            "The mean run time of the fastest, second, ... worker of an iteration. Waiting for all "
            "workers takes as long as the last.",
        ),
        Section(
            "network",
            "Time of a message against its size",
            [] if shown.network is None else [_transits(shown.network)],
            "Medians of the messages with which the run began, when nothing else was under way, "
            "and the law: latency + bytes / bandwidth.",
        ),
        Section(
            "all-reduces",
            "Time of all-reduces against their size",
            [] if shown.all_reduces is None else [_all_reduces(shown.all_reduces)],
            "From the last arrival of a worker until the end: medians of all-reduces alone, the "
            "line through them, and what those of the training added to an iteration.",
        ),
        Section(
            "service",
            "Service times of the servers",
            [] if shown.service is None else [_service(shown.service)],
            "How long a server needs for a push and for an answer, without waits.",
        ),
    ]
    goodness = shown.compute.goodness
    fitted = (
        f"Run times: {_law_name(shown)}, Kolmogorov distance {goodness.distance:.3f}, order "
        f"statistics at most {percent(float(np.abs(goodness.order_off).max()))} off."
    )
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
            *(section for section in sections if section.content),
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
    layout = _shares(axis("run time (s)"))
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


def _shares(x: Plot) -> Plot:
    """Return the layout of distribution functions."""
    y = axis("share of the times up to this", range=[0, 1])
    return {"xaxis": x, "yaxis": y, "hovermode": "closest"}


def _order(shown: Shown) -> Figure:
    """Return the figure `figure-order`: recorded and fitted means of the order statistics."""
    goodness = shown.compute.goodness
    places = list(range(1, len(goodness.recorded_order) + 1))
    traces = [
        line("recorded", places, rounded(goodness.recorded_order)),
        line(_law_name(shown), places, rounded(goodness.fitted_order), 1, dash="dash"),
    ]
    for trace in traces:
        trace["mode"] = "lines+markers"
    ticks = {"dtick": 1} if len(places) <= _MOST_WORKERS else {}
    layout = {
        "xaxis": axis("place of the worker in its iteration: 1 is the fastest", **ticks),
        "yaxis": axis_from_0("mean run time (s)"),
        "hovermode": "x unified",
    }
    alt = "Recorded and fitted order statistics"
    return Figure("figure-order", alt, {(): view(traces, layout)})


def _transits(network: NetworkFit) -> Figure:
    """Return the figure `figure-transits`: times of messages against their sizes."""
    found = network.transits
    traces = [
        _marks(name, found.size_bytes[mine], found.seconds[mine], place)
        for place, (name, mine) in enumerate(
            (("to servers", found.to_server), ("to workers", ~found.to_server))
        )
    ]
    traces.append(_marks("law", found.size_bytes, network.fitted, 2, symbol="x"))
    return _by_size("figure-transits", "Time of messages against size", traces)


def _all_reduces(fit: AllReduceFit) -> Figure:
    """Return the figure `figure-all-reduces`: recorded times and the line."""
    sizes = np.geomspace(fit.alone.size_bytes.min(), fit.alone.size_bytes.max(), 30)
    traces = [
        _marks("alone", fit.alone.size_bytes, fit.alone.seconds, 0),
        _marks("mean of the training", fit.training[:, 0], fit.training[:, 1], 1),
        line("line", rounded(sizes), rounded(1e3 * fit.line.at(sizes)), 2, dash="dash"),
    ]
    return _by_size("figure-all-reduces", "Time of all-reduces against size", traces)


def _marks(
    name: str, sizes: Floats, seconds: Floats, place: int, symbol: str = "circle"
) -> go.Scatter:
    look = {"color": colour(place), "size": 8, "opacity": 0.75, "symbol": symbol}
    return dots(name, rounded(sizes), rounded(1e3 * seconds), None, **look)


def _by_size(name: str, alt: str, traces: Sequence[go.Scatter]) -> Figure:
    """Return a figure of times in ms against sizes, both on logarithmic axes."""
    x, y = ([value for each in traces for value in each[name]] for name in ("x", "y"))
    layout = {
        "xaxis": log_axis("bytes", x, size),
        "yaxis": log_axis("time (ms)", y),
        "hovermode": "closest",
    }
    return Figure(name, alt, {(): view(traces, layout)})


def _service(service: ServiceTimes) -> Figure:
    """Return the figure `figure-service`: distributions of service times."""
    kinds = (("push", service.push), ("answer", service.answer))
    traces = [
        _curve(name, 1e3 * np.concatenate(times), place)
        for place, (name, times) in enumerate(kinds)
        if any(map(len, times))
    ]
    x = log_axis("service time (ms)", [value for each in traces for value in each.x])
    return Figure("figure-service", "Service times", {(): view(traces, _shares(x))})
