"""Draws the events of a span of time: bars in lanes, and lines between lanes or across all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from outpace.report.figures.figure import PHASES, Plot
from outpace.report.read.batches import NULL, Columns
from outpace.report.read.events import Events
from outpace.report.words import plural, seconds

CUT_OFF: Final = "cut off"  # the kind of a computation whose gradient did not count
_MOST: Final = 1500  # iterations drawn
_SIGNS: Final = {"beyond-bound": "≥", "within-bound": "<"}
_HALF: Final = 0.37  # half the height of a worker's bar, in lanes
_THIN: Final = 0.1  # height of an all-reduce's bar, in lanes
_REDUCING: Final = "#2a9d8f"
_STRIPES: Final = {"shape": "/", "size": 5, "solidity": 0.35, "fillmode": "replace"}
_LABELLED: Final = {
    "textposition": "inside",
    "insidetextanchor": "middle",
    "textangle": 0,
    "insidetextfont": {"color": "#ffffff", "size": 10},
}

# Outcome of a gradient that did not count -> kind of the bar, and description of the computation.
_COMPUTED: Final = {
    "": ("compute", "computed"),
    "abstained": (CUT_OFF, "was cut off after it had computed"),
    "dropped": (CUT_OFF, "came too late to count, having computed"),
}

Key = tuple[int, int, int]  # worker, shard, iteration


class _Held(NamedTuple):
    start_ns: int
    end_ns: int
    by: int
    why: str  # the policy's reason


class _Bar(NamedTuple):
    lane: float
    start_ns: int
    end_ns: int
    hover: str
    label: str = ""
    opacity: float = 1.0


class Picture:
    """The traces of a timeline, with a lane for each worker.

    If a scheduler closed the iterations, lines across all lanes show when it did, because the
    scheduler and not another worker ended the waits.
    """

    def __init__(self, workers: Sequence[int], scheduler: int | None = None) -> None:
        """Args:
        workers: numbers of the workers, in the order of their lanes.
        scheduler: number of the scheduler among the shards, if the run has one.
        """
        self._scheduler = scheduler
        self._lane = {worker: lane for lane, worker in enumerate(workers)}
        self._bars: dict[str, list[_Bar]] = {phase: [] for phase in (*PHASES, CUT_OFF)}
        self._released: dict[tuple[int, int], set[int]] = defaultdict(set)
        self._is_closed = False
        self._unused: Mapping[tuple[int, int], str] = {}

    def of(self, events: Events) -> list[Plot]:
        """Return the traces for plotly."""
        held = self._held(events)
        rows, closed = events.iterations, events.closed
        self._is_closed = len(closed["iteration"]) > 0
        self._unused = events.unused if self._is_closed else {}
        chosen = self._shown(rows)
        order = chosen[np.argsort(rows["start_ns"][chosen], kind="stable")]
        for at in order[:_MOST]:
            self._iteration(_row(rows, at), held)
        traces = [self._trace(phase, {"color": PHASES[phase]}) for phase in PHASES]
        if len(events.reductions["worker"]):
            return [*traces, self._reductions(events.reductions)]
        if not self._is_closed:
            return [*traces, *self._releases()]
        striped = {"color": PHASES["compute"], "pattern": _STRIPES}
        return [*traces, self._trace(CUT_OFF, striped), *self._closings(closed)]

    def _shown(self, rows: Columns) -> Any:
        """Return the indices of the rows whose workers have a lane."""
        return np.flatnonzero(np.isin(rows["worker"], list(self._lane)))

    def _held(self, events: Events) -> dict[Key, _Held]:
        found = {}
        for at in self._shown(events.waits):
            wait = _row(events.waits, at)
            found[wait["worker"], wait["shard"], wait["iteration"]] = _Held(
                wait["start_ns"],
                wait["end_ns"],
                wait["released_by"],
                _judgement(events.reasons[at], wait["lead"], wait["bound"]),
            )
        return found

    def _iteration(self, row: Mapping[str, int], held: Mapping[Key, _Held]) -> None:
        worker, iteration, end = row["worker"], row["iteration"], row["end_ns"]
        computed, shard = row["computed_ns"], row["shard"]
        phase, did = _COMPUTED[self._unused.get((worker, iteration), "")]
        self._bar(phase, worker, iteration, row["start_ns"], computed, did)
        if row["held_ns"] <= 0:
            self._bar("communicate", worker, iteration, computed, end, "communicated")
            return
        wait = held.get((worker, shard, iteration))
        if wait is None:  # the pull's row is missing, so the wait is drawn at the end
            wait = _Held(end - row["held_ns"], end, -1, "")
        where = "at the scheduler" if shard == self._scheduler else f"at server {shard}"
        if shard == NULL:
            wait = _Held(computed, computed + row["held_ns"], -1, "")
            where, why = "until all workers had joined", ""
        elif self._is_closed:
            why = " until the iteration was closed"
        else:
            why = (f" for worker {wait.by}" if wait.by >= 0 else "") + wait.why
        self._bar("communicate", worker, iteration, computed, wait.start_ns, "communicated")
        self._bar("wait", worker, iteration, wait.start_ns, wait.end_ns, "waited", f" {where}{why}")
        self._bar("communicate", worker, iteration, wait.end_ns, end, "communicated")
        if wait.by in self._lane and wait.by != worker:
            self._released[wait.by, wait.end_ns].add(worker)

    def _bar(
        self, phase: str, worker: int, iteration: int, start: int, end: int, did: str, why: str = ""
    ) -> None:
        if end > start:
            spent = seconds((end - start) * 1e-9)
            text = f"worker {worker}, iteration {iteration}: {did} {spent}{why}"
            label = str(iteration) if phase == "compute" else ""
            self._bars[phase].append(_Bar(self._lane[worker], start, end, text, label))

    def _trace(self, phase: str, marker: Plot) -> Plot:
        bars = self._bars[phase]
        labels = {"text": [bar.label for bar in bars], **_LABELLED}
        return {**_bars(phase, bars, 2 * _HALF, marker), **labels}

    def _reductions(self, found: Columns) -> Plot:
        """Draw all-reduces as thin bars below the workers' bars, because they may overlap."""
        bars = []
        for row in (_row(found, at) for at in self._shown(found)[:_MOST]):
            lane = self._lane[row["worker"]] + _HALF + 0.7 * _THIN
            start, joined, end = row["start_ns"], row["computed_ns"], row["end_ns"]
            for since, until, did, opacity in (
                (start, joined, "waited for all to join", 0.4),
                (joined, end, "ran", 1.0),
            ):
                text = (
                    f"worker {row['worker']}: all-reduce {row['version']}, joined after iteration "
                    f"{row['iteration']}, of {plural(row['clock'], 'worker')}: {did} "
                    f"{seconds((until - since) * 1e-9)}"
                )
                if since < until:
                    bars.append(_Bar(lane, since, until, text, opacity=opacity))
        marker = {"color": _REDUCING, "opacity": [bar.opacity for bar in bars]}
        return _bars("all-reduce", bars, _THIN, marker)

    def _closings(self, closed: Columns) -> list[Plot]:
        """Draw a line across all lanes at each time an iteration was closed."""
        rows = [_row(closed, at) for at in range(len(closed["iteration"]))]
        times = [_short(row["end_ns"]) for row in rows]
        top, bottom = -0.5, len(self._lane) - 0.5
        texts = [
            f"iteration {row['iteration']}: closed after "
            f"{seconds((row['end_ns'] - row['start_ns']) * 1e-9)} "
            f"with {plural(row['clock'], 'gradient')}<br>at {time:.3f} s"
            for row, time in zip(rows, times, strict=True)
        ]
        lines, marks = _lines(
            "iteration closed",
            [(time, top, bottom) for time in times],
            [(time, top, "triangle-down") for time in times],
            size=8,
        )
        return [lines, {**marks, "hoverinfo": "text", "hovertext": texts}]

    def _releases(self) -> list[Plot]:
        """Draw a line from each worker that ended a wait to the worker that had waited."""
        lines: list[tuple[float, float, float]] = []
        dots: list[tuple[float, float, str]] = []
        heads: list[tuple[float, float, str]] = []
        for (by, time), workers in self._released.items():
            at, origin = _short(time), self._lane[by]
            lanes = [self._lane[worker] for worker in workers]
            ends = [lane + (-_HALF if lane > origin else _HALF) for lane in lanes]
            lines.append((at, min(origin, *ends), max(origin, *ends)))
            dots.append((at, origin, "circle"))
            heads += [
                (at, end, "triangle-down" if lane > origin else "triangle-up")
                for lane, end in zip(lanes, ends, strict=True)
            ]
        return _lines("released by", lines, dots + heads, size=7) if dots else []


def _bars(name: str, bars: Sequence[_Bar], width: float, marker: Plot) -> Plot:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": [bar.lane for bar in bars],
        "base": [_short(bar.start_ns) for bar in bars],
        "x": [_short(bar.end_ns - bar.start_ns) for bar in bars],
        "hovertext": [
            f"{bar.hover}<br>{bar.start_ns * 1e-9:.3f} to {bar.end_ns * 1e-9:.3f} s" for bar in bars
        ],
        "hoverinfo": "text",
        "width": width,
        "marker": {**marker, "line": {"width": 0}},
    }


def _lines(
    name: str,
    lines: Sequence[tuple[float, float, float]],
    marks: Sequence[tuple[float, float, str]],
    size: int,
) -> list[Plot]:
    """Return vertical lines (time, from, to) and marks (time, lane, symbol)."""
    common = {"type": "scatter", "legendgroup": name, "hoverinfo": "skip"}
    return [
        {
            **common,
            "mode": "lines",
            "name": name,
            "x": [x for time, *_ in lines for x in (time, time, None)],
            "y": [y for _, low, high in lines for y in (low, high, None)],
            "line": {"width": 1, "color": "ink"},
            "opacity": 0.55,
        },
        {
            **common,
            "mode": "markers",
            "showlegend": False,
            "x": [time for time, *_ in marks],
            "y": [lane for _, lane, _ in marks],
            "marker": {"size": size, "color": "ink", "symbol": [symbol for *_, symbol in marks]},
        },
    ]


def _short(time_ns: int) -> float:
    """Return seconds, rounded to keep the page small."""
    return round(time_ns * 1e-9, 6)


def _row(columns: Columns, at: Any) -> dict[str, int]:
    return {name: int(column[at]) for name, column in columns.items()}


def _judgement(reason: str, lead: int, bound: int) -> str:
    """Return the reason of a decision in brackets."""
    sign = _SIGNS.get(reason)
    if sign is None:
        return f" ({reason.replace('-', ' ')}, lead {lead}, bound {bound})"
    return f" (lead {lead} {sign} bound {bound})"
