"""Draws the events of a span of time: bars in lanes, lines between them or across all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from outpace.report.figures.figure import PHASES, Plot
from outpace.report.read.batches import NULL, Columns
from outpace.report.read.events import Events
from outpace.report.words import plural, seconds

_MOST: Final = 1500  # iterations drawn
_SIGNS: Final = {"beyond-bound": "≥", "within-bound": "<"}
_HALF: Final = 0.37  # of a lane's bar
CUT_OFF: Final = "cut off"  # a computation whose gradient did not count
_THIN: Final = 0.1  # of a lane, below the bar: an all-reduce
_REDUCING: Final = "#2a9d8f"
_STRIPES: Final = {"shape": "/", "size": 5, "solidity": 0.35, "fillmode": "replace"}

# Outcome of the gradient, if it did not count -> the bar's kind, and what the worker did.
_COMPUTED: Final = {
    "": ("compute", "computed"),
    "abstained": (CUT_OFF, "was cut off after it had computed"),
    "dropped": (CUT_OFF, "came too late to count, having computed"),
}

Key = tuple[int, int, int]  # worker, shard, iteration


@dataclass(frozen=True, slots=True)
class _Held:
    start_ns: int
    end_ns: int
    by: int
    why: str  # the policy's judgement


class Picture:
    """For these workers, one lane each, in this order.

    Where a scheduler closed the iterations, lines across all lanes say when; it, not another
    worker, ended what waits there were.
    """

    def __init__(self, workers: Sequence[int], scheduler: int | None = None) -> None:
        """scheduler: its number among the shards, if the run had one that was one."""
        self._scheduler = scheduler
        self._lane = {worker: lane for lane, worker in enumerate(workers)}
        self._bars: dict[str, list[tuple[int, int, int, str, str]]] = {
            phase: [] for phase in (*PHASES, CUT_OFF)
        }
        self._released: dict[tuple[int, int], set[int]] = defaultdict(set)
        self._is_closed = False
        self._unused: Mapping[tuple[int, int], str] = {}

    def of(self, events: Events) -> list[Plot]:
        """The traces, for plotly."""
        held = self._held(events)
        rows, closed = events.iterations, events.closed
        self._is_closed = len(closed["iteration"]) > 0
        self._unused = events.unused if self._is_closed else {}
        chosen = np.flatnonzero(np.isin(rows["worker"], list(self._lane)))
        order = chosen[np.argsort(rows["start_ns"][chosen], kind="stable")]
        for at in order[:_MOST]:
            self._iteration({name: int(column[at]) for name, column in rows.items()}, held)
        traces = [self._trace(phase) for phase in PHASES]
        if len(events.reductions["worker"]):
            return [*traces, *self._reductions(events.reductions)]
        if not self._is_closed:
            return [*traces, *self._lines()]
        return [*traces, self._trace(CUT_OFF), *self._closings(closed)]

    def _held(self, events: Events) -> dict[Key, _Held]:
        waits = events.waits
        found = {}
        for at in np.flatnonzero(np.isin(waits["worker"], list(self._lane))):
            wait = _row(waits, int(at))
            key = wait["worker"], wait["shard"], wait["iteration"]
            found[key] = _Held(
                wait["start_ns"],
                wait["end_ns"],
                wait["released_by"],
                _judgement(events.reasons[at], wait["lead"], wait["bound"]),
            )
        return found

    def _iteration(self, row: Mapping[str, int], held: Mapping[Key, _Held]) -> None:
        worker, iteration, end = row["worker"], row["iteration"], row["end_ns"]
        computed = row["computed_ns"]
        phase, did = _COMPUTED[self._unused.get((worker, iteration), "")]
        self._bar(phase, worker, iteration, row["start_ns"], computed, did)
        if row["held_ns"] <= 0:
            self._bar("communicate", worker, iteration, computed, end, "communicated")
            return
        wait = held.get((worker, row["shard"], iteration))
        if wait is None:  # the pull's row is missing: somewhere before the end
            wait = _Held(end - row["held_ns"], end, -1, "")
        shard = row["shard"]
        where = "at the scheduler" if shard == self._scheduler else f"at server {shard}"
        if shard == NULL:
            wait = _Held(computed, computed + row["held_ns"], -1, "")
            where, why = "until all had joined", ""
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
        if end <= start:
            return
        span = f"{start * 1e-9:.3f} to {end * 1e-9:.3f} s"
        text = f"worker {worker}, iteration {iteration}: {did} {seconds((end - start) * 1e-9)}{why}"
        label = str(iteration) if phase == "compute" else ""
        self._bars[phase].append((self._lane[worker], start, end, label, f"{text}<br>{span}"))

    def _trace(self, phase: str) -> Plot:
        bars = self._bars[phase]
        return {
            "type": "bar",
            "orientation": "h",
            "name": phase,
            "y": [lane for lane, *_ in bars],
            "base": [round(start * 1e-9, 6) for _, start, *_ in bars],
            "x": [round((end - start) * 1e-9, 6) for _, start, end, *_ in bars],
            "text": [label for *_, label, _ in bars],
            "textposition": "inside",
            "insidetextanchor": "middle",
            "textangle": 0,
            "insidetextfont": {"color": "#ffffff", "size": 10},
            "hovertext": [text for *_, text in bars],
            "hoverinfo": "text",
            "width": 2 * _HALF,
            "marker": {"color": PHASES["compute"], "line": {"width": 0}, "pattern": _STRIPES}
            if phase == CUT_OFF
            else {"color": PHASES[phase], "line": {"width": 0}},
        }

    def _reductions(self, found: Columns) -> list[Plot]:
        """Thin bars under those of the workers: what went on beside the computing."""
        chosen = np.flatnonzero(np.isin(found["worker"], list(self._lane)))[:_MOST]
        bars = []
        for row in (_row(found, int(at)) for at in chosen):
            text = (
                f"worker {row['worker']}: all-reduce {row['version']}, joined after iteration "
                f"{row['iteration']}, of {plural(row['clock'], 'worker')}"
            )
            lane = self._lane[row["worker"]] + _HALF + 0.7 * _THIN
            bars.append((lane, row["start_ns"], row["computed_ns"], 0.4, f"{text}: waits for all"))
            bars.append((lane, row["computed_ns"], row["end_ns"], 1.0, f"{text}: under way"))
        bars = [bar for bar in bars if bar[1] < bar[2]]
        return [
            {
                "type": "bar",
                "orientation": "h",
                "name": "all-reduce",
                "y": [lane for lane, *_ in bars],
                "base": [round(start * 1e-9, 6) for _, start, *_ in bars],
                "x": [round((end - start) * 1e-9, 6) for _, start, end, *_ in bars],
                "hovertext": [
                    f"{text} {seconds((end - start) * 1e-9)}<br>"
                    f"{start * 1e-9:.3f} to {end * 1e-9:.3f} s"
                    for _, start, end, _, text in bars
                ],
                "hoverinfo": "text",
                "width": _THIN,
                "marker": {
                    "color": _REDUCING,
                    "opacity": [opacity for *_, opacity, _ in bars],
                    "line": {"width": 0},
                },
            }
        ]

    def _closings(self, closed: Columns) -> list[Plot]:
        """Lines across all lanes where an iteration was closed."""
        rows = [_row(closed, at) for at in range(len(closed["iteration"]))]
        times = [round(row["end_ns"] * 1e-9, 6) for row in rows]
        top, bottom = -0.5, len(self._lane) - 0.5
        texts = [
            f"iteration {row['iteration']}: closed after "
            f"{seconds((row['end_ns'] - row['start_ns']) * 1e-9)} "
            f"with {plural(row['clock'], 'gradient')}<br>at {time:.3f} s"
            for row, time in zip(rows, times, strict=True)
        ]
        group = {"type": "scatter", "legendgroup": "closed", "cliponaxis": True}
        return [
            {
                **group,
                "mode": "lines",
                "name": "iteration closed",
                "hoverinfo": "skip",
                "x": [x for time in times for x in (time, time, None)],
                "y": [y for _ in times for y in (top, bottom, None)],
                "line": {"width": 1, "color": "ink"},
                "opacity": 0.55,
            },
            {
                **group,
                "mode": "markers",
                "showlegend": False,
                "hoverinfo": "text",
                "x": times,
                "y": [top] * len(times),
                "hovertext": texts,
                "marker": {"size": 8, "color": "ink", "symbol": "triangle-down"},
            },
        ]

    def _lines(self) -> list[Plot]:
        """From those who released to those who had waited."""
        line: tuple[list[float | None], list[float | None]] = ([], [])
        dots: list[tuple[float, float, str]] = []
        heads: list[tuple[float, float, str]] = []
        for (by, time), workers in self._released.items():
            at, origin = round(time * 1e-9, 6), self._lane[by]
            lanes = [self._lane[worker] for worker in workers]
            ends = [lane + (-_HALF if lane > origin else _HALF) for lane in lanes]
            line[0].extend((at, at, None))
            line[1].extend((min(origin, *ends), max(origin, *ends), None))
            dots.append((at, origin, "circle"))
            heads += [
                (at, end, "triangle-down" if lane > origin else "triangle-up")
                for lane, end in zip(lanes, ends, strict=True)
            ]
        if not dots:
            return []
        group = {"type": "scatter", "legendgroup": "released", "hoverinfo": "skip"}
        marks = dots + heads
        return [
            {
                **group,
                "mode": "lines",
                "name": "released by",
                "x": line[0],
                "y": line[1],
                "line": {"width": 1, "color": "ink"},
                "opacity": 0.55,
            },
            {
                **group,
                "mode": "markers",
                "showlegend": False,
                "x": [x for x, _, _ in marks],
                "y": [y for _, y, _ in marks],
                "cliponaxis": True,
                "marker": {
                    "size": [7] * len(dots) + [7] * len(heads),
                    "color": "ink",
                    "symbol": [symbol for *_, symbol in marks],
                    "line": {"width": 0},
                },
            },
        ]


def _row(columns: Columns, at: int) -> dict[str, int]:
    return {name: int(column[at]) for name, column in columns.items()}


def _judgement(reason: str, lead: int, bound: int) -> str:
    """In brackets, as `Reason.describe` says it; another reason by its own name."""
    sign = _SIGNS.get(reason)
    if sign is None:
        return f" ({reason.replace('-', ' ')}, lead {lead}, bound {bound})"
    return f" (lead {lead} {sign} bound {bound})"
