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
    FigureView,
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
from outpace.report.words import duration, percent, size

Floats = NDArray[np.float64]
_POINTS: Final = 300  # per curve
_MOST_WORKERS: Final = 16  # with curves of their own


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """The content of a page about a calibration.

    Args:
        laws: Keys of the cluster file, and their laws in words.
        rows: The table of the run times; the first row has the titles.
        recorded: Run times of the iterations that all workers finished, in s, shape (T, N).
        network, service, all_reduces: None if they were not measured.
        all_reduce_rows: The table of the all-reduces, as `rows`.
    """

    name: str
    laws: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str]
    compute: RunTimeFit
    recorded: Floats
    network: NetworkFit | None = None
    service: ServiceTimes | None = None
    all_reduce_rows: Sequence[Sequence[str]] = ()
    all_reduces: AllReduceFit | None = None


def write_calibration_page(shown: Shown, path: Path) -> None:
    """Write the page to `path`. Raises ConfigError if the file cannot be written."""
    rows = [[Cell(key, look="code"), Cell(words, look="words")] for key, words in shown.laws]
    laws = [Table("laws-table", ["Key", Cell("Law", look="words")], rows)]
    sections = [
        Section("laws", "The cluster file", laws),
        Section(
            "run-times",
            "Run times of the workers",
            [_distribution(shown)],
            "The share of the run times up to each duration, as recorded and as the law draws "
            f"them.{_replayed(shown)} A run time is the time that the worker itself needs in an "
            "iteration, without waits and transfers.",
        ),
        Section(
            "order",
            "From the fastest to the slowest",
            [_order(shown)],
            "The mean run time of the fastest, second, ... worker of an iteration. Waiting for all "
            "workers takes as long as the last.",
        ),
    ]
    if shown.network is not None:
        sections.append(
            Section(
                "network",
                "Time of a message against its size",
                [_transits(shown.network)],
                "Medians of the messages with which the run began, when nothing else was under "
                "way, and the line latency + bytes / bandwidth.",
            )
        )
    if shown.all_reduce_rows:
        title, figures = "Time of all-reduces", []
        about = (
            "Periods in which all-reduces were under way, from the last arrival of a rank until "
            "the end: medians, and times by latency and bandwidth."
        )
        if shown.all_reduces is not None:
            title, figures = "Time of an all-reduce against its size", [shown.all_reduces]
            about = (
                "From the last arrival of a worker: medians of the probe, mean of the training of "
                "each run, and the times of the training by the law."
            )
        table = _table("all-reduce-times", shown.all_reduce_rows)
        drawn = [_all_reduces(fit) for fit in figures]
        sections.append(Section("all-reduces", title, [*drawn, table], about))
    if shown.service is not None:
        sections.append(
            Section(
                "service",
                "Service times of the servers",
                [_service(shown.service)],
                "How long a server needs for a push and for an answer, without waits.",
            )
        )
    sections.append(Section("numbers", "Goodness of fit", [_table("goodness", shown.rows)]))
    write_page(
        path,
        title=f"Outpace: calibration of {shown.name}",
        heading=f"Calibration: {shown.name}",
        what=dict(shown.laws)["from"],
        findings=[*_findings(shown), *(f"{note[:1].upper()}{note[1:]}." for note in shown.notes)],
        sections=sections,
    )


def _table(name: str, rows: Sequence[Sequence[str]]) -> Table:
    head, *cells = rows
    return Table(name, head, cells)


def _findings(shown: Shown) -> list[str]:
    fit = shown.compute
    worst = float(np.abs(fit.goodness.order_off).max())
    close = (
        f"Kolmogorov distance {fit.goodness.distance:.3f}, order statistics at most "
        f"{percent(worst)} off"
    )
    if fit.law is None:
        found = [f"The run times are replayed: the best law, {fit.tried.kind}, is off ({close})."]
    else:
        found = [f"The run times follow the law {fit.tried.kind}: {close}."]
    if shown.network is not None:
        off = (
            f"the median message is {percent(shown.network.error)} off the line"
            if shown.network.testable
            else "whether the line describes messages is not testable, since it has as many "
            "parameters as there are times"
        )
        latency = duration(shown.network.law.latency_s)
        found.append(f"A message alone has a latency of {latency}; {off}.")
    return found


def _distribution(shown: Shown) -> Figure:
    """Return the figure `figure-run-times`: recorded and drawn distribution functions."""
    drawn, law = shown.compute.goodness.drawn, _law_name(shown)
    views: Views = {("all workers",): _two_curves(shown.recorded, drawn, law)}
    workers = shown.recorded.shape[1]
    if 1 < workers <= _MOST_WORKERS:
        for worker in range(workers):
            pair = shown.recorded[:, worker], drawn[:, worker]
            views[f"worker {worker}",] = _two_curves(*pair, law)
    alt = "Distribution of recorded and fitted run times"
    return Figure("figure-run-times", alt, views, ["Of"], height=380)


def _replayed(shown: Shown) -> str:
    """Say that simulations do not use the law that is drawn, if it was rejected."""
    if shown.compute.law is not None:
        return ""
    return " The law was rejected: simulations replay the recorded times."


def _law_name(shown: Shown) -> str:
    """Return the name of the curve of the law."""
    fit = shown.compute
    return f"rejected law: {fit.tried.kind}" if fit.law is None else f"fitted: {fit.law.kind}"


def _two_curves(recorded: Floats, drawn: Floats, law: str) -> FigureView:
    traces = [
        _curve("recorded", recorded.ravel(), 0, "solid"),
        _curve(law, drawn.ravel(), 1, "dash"),
    ]
    layout = {
        "xaxis": axis("run time (s)"),
        "yaxis": axis("share of the times up to this", range=[0, 1]),
        "hovermode": "closest",
    }
    return view(traces, layout)


def _curve(name: str, times: Floats, place: int, dash: str) -> go.Scatter:
    ordered = np.sort(times)
    kept = thinned(len(ordered), _POINTS)
    share = (np.array(kept) + 1) / len(ordered)
    return line(name, rounded(ordered[kept]), rounded(share, 4), place, dash=dash)


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
    return Figure(
        "figure-order", "Recorded and fitted order statistics", {(): view(traces, layout)}
    )


def _transits(network: NetworkFit) -> Figure:
    """Return the figure `figure-transits`: times of messages against their sizes."""
    of, traces = network.transits, []
    for place, (name, direction) in enumerate((("to servers", True), ("to workers", False))):
        mine = of.where(of.to_server == direction)
        columns = mine.worker, mine.server, mine.size_bytes, mine.seconds
        hover = [
            f"worker {worker}, server {server}: {size:,.0f} bytes in {duration(float(time))}"
            for worker, server, size, time in zip(*columns, strict=True)
        ]
        x, y = rounded(mine.size_bytes), rounded(1e3 * mine.seconds)
        traces.append(dots(name, x, y, hover, color=colour(place), size=8, opacity=0.75))
    sizes, which = np.unique(of.size_bytes, return_inverse=True)
    fitted = [1e3 * network.fitted[which.ravel() == place] for place in range(len(sizes))]
    fastest, slowest = (rounded(map(end, fitted)) for end in (np.min, np.max))
    if slowest == fastest:
        traces.append(line("law", rounded(sizes), fastest, 2, dash="dash"))
    else:
        traces.append(line("law, fastest", rounded(sizes), fastest, 2, dash="dash"))
        traces.append(line("law, slowest", rounded(sizes), slowest, 4, dash="dash"))
    return _by_size("figure-transits", "Time of messages against size", traces)


def _all_reduces(fit: AllReduceFit) -> Figure:
    """Return the figure `figure-all-reduces`: recorded times and the law."""
    recorded = (
        ("median", fit.sizes, fit.medians, 8),
        ("mean of the training", fit.training[:, 0], fit.training[:, 1], 12),
    )
    traces = []
    for place, (name, sizes, times, diameter) in enumerate(recorded):
        look = {"color": colour(place), "size": diameter, "opacity": 0.75}
        traces.append(dots(name, rounded(sizes), rounded(1e3 * times), None, **look))
    sizes = np.geomspace(fit.sizes.min(), fit.sizes.max(), 30)
    traces.append(line("law", rounded(sizes), rounded(1e3 * fit.seconds(sizes)), 2, dash="dash"))
    return _by_size("figure-all-reduces", "Time of an all-reduce against its size", traces)


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
    traces = [
        _curve(name, 1e3 * times, place, "solid")
        for place, (name, times) in enumerate((("push", service.push), ("answer", service.answer)))
        if len(times)
    ]
    layout = {
        "xaxis": log_axis("service time (ms)", [x for each in traces for x in each.x]),
        "yaxis": axis("share of the times up to this", range=[0, 1]),
        "hovermode": "closest",
    }
    return Figure("figure-service", "Service times", {(): view(traces, layout)})
