"""Shows which worker waited for which other worker: a lane of activities for each worker.

The number in a bar is the iteration. An arrow runs from the worker whose push ended a wait to the
worker that had waited. If a scheduler closed the iterations, lines across all lanes show when they
were closed, because the scheduler and not another worker ended the waits. Computation that was
stopped at such a line gave no gradient, and is striped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import plotly.graph_objects as go
import pyarrow as pa
import pyarrow.compute as pc

from outpace.record.reading import Unreadable
from outpace.report.figures.figure import (
    INK,
    NO_TRACE,
    PHASES,
    Figure,
    FigureView,
    Views,
    axis,
    bars,
    down,
    lanes,
    view,
)
from outpace.report.figures.split import MOST, lane_labels, shown_workers
from outpace.report.read.runs import Run, clock
from outpace.report.read.traces import Totals, read_span
from outpace.report.words import listed, percent, seconds

_ITERATIONS: Final = 8  # number of iterations of mean length that fit into a span
_MOST_ITERATIONS: Final = 1500  # number of bars and arrows that are drawn
_CULPRITS: Final = 2  # number of workers that are named in the text
_NOTABLE: Final = 0.1  # share of the waiting from which a worker is named
_CUT_OFF: Final = "cut off"
_CLOSED: Final = "Dashed: an iteration was closed. Striped: computation that was cut off."
_STRIPED: Final = {
    "color": PHASES["compute"],
    "pattern": {"shape": "/", "size": 5, "solidity": 0.4, "fillmode": "replace"},
}
_HALF: Final = 0.37  # half the height of a bar, in lanes
_NUMBERS: Final = {
    "textposition": "inside",
    "insidetextanchor": "middle",
    "textangle": 0,
    "insidetextfont": {"color": "#ffffff", "size": 10},
}


def timeline(runs: Sequence[Run], totals: Sequence[Totals | None]) -> Figure:
    """Return the figure `figure-timeline`, a view per run.

    It shows the time around the longest wait of a run; without waits, the first iterations.
    """
    known = [(run, sums) for run, sums in zip(runs, totals, strict=True) if sums is not None]
    length = span_length([sums for _, sums in known]) if known else 1
    views: Views = {}
    for run, sums in known:
        try:
            views[run.name,] = _view(run, sums, length)
        except Unreadable as error:
            run.problems.append(str(error))
    rows = max((len(sums.iterations) for _, sums in known), default=1)
    return Figure(
        "figure-timeline",
        "Timeline of the workers: when each computed, communicated and waited",
        views,
        ["Run"],
        height=150 + 27 * min(rows, MOST),
        tall=True,
        instead=NO_TRACE,
    )


def span_length(totals: Sequence[Totals]) -> int:
    """Return the length (ns) of the spans that are shown, the same for all runs.

    A span contains eight iterations of the slowest run, but at most forty of the fastest run.
    """
    lengths = [sums.mean_iteration_s for sums in totals]
    span_s = min(_ITERATIONS * max(lengths), 5 * _ITERATIONS * min(lengths))
    return max(round(span_s * 1e9), 1)


def span_around(start: int, end: int, length: int) -> tuple[int, int]:
    """Return a span of at least `length` ns that contains the time from start to end, near its end.

    The span also contains a short time afterwards.
    """
    length = max(length, round(1.5 * (end - start)))
    first = max(end - round(0.7 * length), 0)
    return first, first + length


def _view(run: Run, sums: Totals, length: int) -> FigureView:
    span, wanted, wait = (0, length), [], sums.longest
    if wait is not None:
        span = span_around(wait.end_ns - wait.held_ns, wait.end_ns, length)
    iterations, closed = read_span(run.trace, *span)
    if wait is not None:
        rows = (pc.field("worker") == wait.worker) & (pc.field("iteration") == wait.iteration)
        by = iterations.filter(rows)["released_by"].drop_null().to_pylist()
        wanted = [wait.worker, *(worker for worker in by if worker < len(sums.iterations))]
    workers, selected = shown_workers(sums, wanted)
    lane = {worker: place for place, worker in enumerate(workers)}
    shown = iterations.filter(pc.field("worker").isin(workers)).slice(0, _MOST_ITERATIONS)
    if len(closed):  # the waits were not ended by the push of a worker
        nobody = pa.nulls(len(shown), pa.int64())
        shown = shown.drop_columns("released_by").append_column("released_by", nobody)
    traces = [*_bars(shown, lane), *_arrows(shown, lane)]
    low, high = (time * 1e-9 for time in span)
    layout = {
        "xaxis": axis(f"{clock([run])} (s)", range=[low - 0.01 * (high - low), high]),
        "yaxis": lanes(lane_labels(run, workers), "worker", margin=0.6),
        "barmode": "overlay",
        "hovermode": "closest",
        "uniformtext": {"mode": "hide", "minsize": 9},
        "shapes": [down(_seconds(end)) for end in closed["end_ns"].to_pylist()],
    }
    words = [*_words(sums), selected, _CLOSED * bool(len(closed))]
    return view(traces, layout, " ".join(filter(None, words)))


def _bars(rows: pa.Table, lane: dict[int, int]) -> list[go.Bar]:
    """Return the bars of what workers did: a trace for each phase, and for what was cut off."""
    drawn: dict[str, list[Any]] = {phase: [] for phase in (*PHASES, _CUT_OFF)}
    for row in rows.to_pylist():
        for phase, start, end in (
            (_CUT_OFF if row["is_cut_off"] else "compute", "start_ns", "computed_ns"),
            ("communicate", "computed_ns", "since_ns"),
            ("wait", "since_ns", "until_ns"),
            ("communicate", "until_ns", "end_ns"),
        ):
            if row[end] > row[start]:
                drawn[phase].append((row, row[start], row[end]))
    return [
        bars(
            phase,
            [_seconds(end - start) for _, start, end in found],
            [lane[row["worker"]] for row, *_ in found],
            [_hover(row, phase, start, end) for row, start, end in found],
            _STRIPED if phase == _CUT_OFF else {"color": PHASES[phase], "line": {"width": 0}},
            base=[_seconds(start) for _, start, _ in found],
            orientation="h",
            width=2 * _HALF,
            text=[row["iteration"] if phase == "compute" else "" for row, *_ in found],
            **_NUMBERS,
        )
        for phase, found in drawn.items()
        if found or phase in PHASES
    ]


def _hover(row: dict[str, Any], phase: str, start: int, end: int) -> str:
    words = f"worker {row['worker']}, iteration {row['iteration']}: {phase} "
    words += "after " * (phase == _CUT_OFF)
    words += seconds((end - start) * 1e-9)
    if phase == "wait" and row["shard"] is None:
        words += " until all workers had joined"
    elif phase == "wait" and row["released_by"] is not None:
        words += f" for worker {row['released_by']}"
    return f"{words}<br>{start * 1e-9:.3f} to {end * 1e-9:.3f} s"


def _arrows(rows: pa.Table, lane: dict[int, int]) -> list[go.Scatter]:
    """Return arrows from the workers that ended waits to the workers that had waited."""
    xs: list[float | None] = []
    ys: list[float | None] = []
    for row in rows.filter(pc.field("held_ns") > 0).to_pylist():
        origin, end = lane.get(row["released_by"]), lane[row["worker"]]
        if origin is not None and origin != end:
            at = _seconds(row["until_ns"])
            xs += [at, at, None]
            ys += [origin, end - _HALF if end > origin else end + _HALF, None]
    look = {"symbol": ["circle", "arrow", "circle"] * (len(xs) // 3), "angleref": "previous"}
    arrows = go.Scatter(
        name="released by",
        x=xs,
        y=ys,
        mode="lines+markers",
        line={"color": INK, "width": 1},
        marker={**look, "size": 7, "color": INK},
        hoverinfo="skip",
    )
    return [arrows] if xs else []


def _words(sums: Totals) -> Iterator[str]:
    wait = sums.longest
    if wait is None:
        yield "No worker waited in this run."
        return
    yield (
        f"The longest wait: worker {wait.worker} in iteration {wait.iteration}, "
        f"{seconds(wait.held_ns * 1e-9)}."
    )
    whole = float(sums.ended_s.sum())
    worst = (-sums.ended_s).argsort(kind="stable")[:_CULPRITS].tolist()
    parts = [
        f"{percent(float(sums.ended_s[worker]) / whole, 0)} was for worker {worker}"
        for worker in worst
        if sums.ended_s[worker] > _NOTABLE * whole
    ]
    if parts and not len(sums.closed["clock"]):
        yield f"Of all waiting time in this run, {listed(parts)}."


def _seconds(time_ns: int) -> float:
    """Return seconds, rounded to keep the page small."""
    return round(time_ns * 1e-9, 6)
