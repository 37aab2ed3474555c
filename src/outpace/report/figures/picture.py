"""Draws the events of a span of time: bars in lanes, and lines between lanes or across all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import plotly.graph_objects as go

from outpace.record.reading import Columns, chosen_rows
from outpace.record.trace import NONE
from outpace.report.figures.figure import INK, PHASES, Plot, bars, dots, line
from outpace.report.read.events import Events
from outpace.report.read.interruptions import Interruption
from outpace.report.words import plural, seconds

CUT_OFF: Final = "cut off"  # the kind of a computation whose gradient did not count
LOST: Final = "process lost"
_MOST: Final = 1500  # iterations drawn
_SIGNS: Final = {"beyond-bound": "≥", "within-bound": "<"}
_HALF: Final = 0.37  # half the height of a worker's bar, in lanes
_THIN: Final = 0.1  # height of an all-reduce's bar, in lanes
_STRIPES: Final = {"shape": "/", "size": 5, "solidity": 0.35, "fillmode": "replace"}
_MARKERS: Final[dict[str, Plot]] = {
    **{phase: {"color": colour} for phase, colour in PHASES.items()},
    CUT_OFF: {"color": PHASES["compute"], "pattern": _STRIPES},
    "all-reduce": {"color": "#2a9d8f"},
    "collective": {"color": "#8d5fb0"},
    LOST: {"color": "#6b7078", "pattern": {"shape": "x", "size": 6, "solidity": 0.3}},
}
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

    Args:
        workers: numbers of the workers, in the order of their lanes.
        scheduler: number of the scheduler among the shards, if the run has one.
        losses: processes that were lost in the run.
        end_ns: end of the span of time that is shown.
    """

    def __init__(
        self,
        events: Events,
        workers: Sequence[int],
        scheduler: int | None,
        losses: Sequence[Interruption],
        end_ns: int,
    ) -> None:
        self._losses, self._end_ns = losses, end_ns
        self._events, self._scheduler = events, scheduler
        self._lane = {worker: lane for lane, worker in enumerate(workers)}
        self._bars: dict[str, list[_Bar]] = {phase: [] for phase in (*PHASES, CUT_OFF)}
        self._released: dict[tuple[int, int], set[int]] = defaultdict(set)
        self._is_closed = len(events.closed["iteration"]) > 0

    def traces(self) -> list[Any]:
        """Return the traces for plotly."""
        waits = {
            (wait["worker"], wait["shard"], wait["iteration"]): wait
            for wait in self._shown(self._events.waits)
        }
        iterations = sorted(
            self._shown(self._events.iterations), key=lambda iteration: iteration["start_ns"]
        )
        for row in iterations[:_MOST]:
            self._iteration(row, waits.get((row["worker"], row["shard"], row["iteration"])))
        traces = [*self._lost(), *(self._labelled(phase) for phase in PHASES)]
        if len(self._events.collectives["worker"]):
            traces.append(self._thin("collective", self._events.collectives))
        if len(self._events.reductions["worker"]):
            return [*traces, self._thin("all-reduce", self._events.reductions)]
        if self._is_closed:
            return [*traces, self._labelled(CUT_OFF), *self._closings()]
        return [*traces, *self._releases()]

    def _shown(self, columns: Columns) -> list[dict[str, Any]]:
        """Return the rows whose workers have a lane."""
        return chosen_rows(columns, np.isin(columns["worker"], list(self._lane)))

    def _iteration(self, row: Mapping[str, int], wait: Mapping[str, Any] | None) -> None:
        worker, iteration, shard, held = (
            row[name] for name in ("worker", "iteration", "shard", "held_ns")
        )
        computed, end = row["computed_ns"], row["end_ns"]
        # Without cut-offs, a gradient that did not count was computed to its end.
        outcome = self._events.unused.get((worker, iteration), "") if self._is_closed else ""
        phase, did = _COMPUTED[outcome]
        self._bar(phase, row, row["start_ns"], computed, did)
        if held <= 0:
            self._bar("communicate", row, computed, end, "communicated")
            return
        since, until = end - held, end  # if the pull's row is missing
        by, why = -1, " at the scheduler" if shard == self._scheduler else f" at server {shard}"
        if wait is not None:
            since, until, by = wait["start_ns"], wait["end_ns"], wait["released_by"]
        if shard == NONE:
            since, until, why = computed, computed + held, " until all workers had joined"
        elif self._is_closed:
            why += " until the iteration was closed"
        elif wait is not None:
            why += f" for worker {by}{_judgement(wait)}"
        self._bar("communicate", row, computed, since, "communicated")
        self._bar("wait", row, since, until, "waited", why)
        self._bar("communicate", row, until, end, "communicated")
        if by in self._lane and by != worker:
            self._released[by, until].add(worker)

    def _bar(
        self, phase: str, row: Mapping[str, int], start: int, end: int, did: str, why: str = ""
    ) -> None:
        if end > start:
            worker, iteration = row["worker"], row["iteration"]
            spent = seconds((end - start) * 1e-9)
            text = f"worker {worker}, iteration {iteration}: {did} {spent}{why}"
            label = str(iteration) if phase == "compute" else ""
            self._bars[phase].append(_Bar(self._lane[worker], start, end, text, label))

    def _lost(self) -> list[go.Bar]:
        """Draw bars where workers had no process: all workers, if all began again."""
        drawn = []
        for each in self._losses:
            start = round(each.at_s * 1e9)
            end = self._end_ns if each.away_s is None else start + round(each.away_s * 1e9)
            alone = each.checkpoint is None  # a worker was replaced, or a process lost for good
            workers = [each.worker] if alone else list(self._lane)
            drawn += [
                _Bar(
                    self._lane[worker],
                    start,
                    end,
                    f"worker {worker}: {each.who} was lost, for {seconds((end - start) * 1e-9)}",
                )
                for worker in workers
                if worker in self._lane and each.who and end > start
            ]
        return [_trace(LOST, drawn, 2 * _HALF)] if drawn else []

    def _labelled(self, phase: str) -> go.Bar:
        drawn = self._bars[phase]
        labels = [bar.label for bar in drawn]
        return _trace(phase, drawn, 2 * _HALF).update(text=labels, **_LABELLED)

    def _thin(self, what: str, columns: Columns) -> go.Bar:
        """Draw all-reduces as thin bars below the workers' bars, because they may overlap."""
        drawn = []
        for row in self._shown(columns)[:_MOST]:
            lane = self._lane[row["worker"]] + _HALF + 0.7 * _THIN
            start, joined, end = row["start_ns"], row["computed_ns"], row["end_ns"]
            for since, until, did, opacity in (
                (start, joined, "waited for all to join", 0.4),
                (joined, end, "ran", 1.0),
            ):
                if what == "collective":
                    which = f"the script's collective {row['version']}"
                else:
                    which = (
                        f"all-reduce {row['version']}, joined after iteration {row['iteration']}, "
                        f"of {plural(row['clock'], 'worker')}"
                    )
                spent = seconds((until - since) * 1e-9)
                text = f"worker {row['worker']}: {which}: {did} {spent}"
                if since < until:
                    drawn.append(_Bar(lane, since, until, text, opacity=opacity))
        trace = _trace(what, drawn, _THIN)
        return trace.update(marker_opacity=[bar.opacity for bar in drawn])

    def _closings(self) -> list[go.Scatter]:
        """Draw a line across all lanes at each time an iteration was closed."""
        top, bottom = -0.5, len(self._lane) - 0.5
        lines, marks, texts = [], [], []
        for row in chosen_rows(self._events.closed, slice(None)):
            time = _short(row["end_ns"])
            lines.append((time, top, bottom))
            marks.append((time, top, "triangle-down"))
            texts.append(
                f"iteration {row['iteration']}: closed after "
                f"{seconds((row['end_ns'] - row['start_ns']) * 1e-9)} "
                f"with {plural(row['clock'], 'gradient')}<br>at {time:.3f} s"
            )
        across, ends = _lines("iteration closed", lines, marks, size=8)
        return [across, ends.update(hoverinfo="text", hovertext=texts)]

    def _releases(self) -> list[go.Scatter]:
        """Draw a line from each worker that ended a wait to the worker that had waited."""
        lines, dots, heads = [], [], []
        for (by, time), workers in self._released.items():
            at, origin = _short(time), self._lane[by]
            ends: list[float] = [origin]
            for lane in (self._lane[worker] for worker in workers):
                below = lane > origin
                ends.append(lane - _HALF if below else lane + _HALF)
                heads.append((at, ends[-1], "triangle-down" if below else "triangle-up"))
            lines.append((at, min(ends), max(ends)))
            dots.append((at, ends[0], "circle"))
        return _lines("released by", lines, dots + heads, size=7) if dots else []


def _trace(name: str, drawn: Sequence[_Bar], width: float) -> go.Bar:
    return bars(
        name,
        [_short(bar.end_ns - bar.start_ns) for bar in drawn],
        [bar.lane for bar in drawn],
        [f"{bar.hover}<br>{bar.start_ns * 1e-9:.3f} to {bar.end_ns * 1e-9:.3f} s" for bar in drawn],
        {**_MARKERS[name], "line": {"width": 0}},
        base=[_short(bar.start_ns) for bar in drawn],
        orientation="h",
        width=width,
    )


def _lines(
    name: str,
    lines: Iterable[tuple[float, float, float]],
    marks: Sequence[tuple[float, float, str]],
    size: int,
) -> list[go.Scatter]:
    """Return vertical lines (time, from, to) and marks (time, lane, symbol)."""
    times, lanes, symbols = zip(*marks, strict=True)
    upright = line(
        name,
        [x for time, *_ in lines for x in (time, time, None)],
        [y for _, low, high in lines for y in (low, high, None)],
        color=INK,
        width=1,
        dash="solid",
    )
    ends = dots("", times, lanes, None, size=size, color=INK, symbol=symbols)
    for each in (upright, ends):
        each.update(legendgroup=name, hoverinfo="skip")
    return [upright, ends.update(showlegend=False)]


def _short(time_ns: int) -> float:
    """Return seconds, rounded to keep the page small."""
    return round(time_ns * 1e-9, 6)


def _judgement(wait: Mapping[str, Any]) -> str:
    """Return the reason of the policy's decision in brackets."""
    reason, lead, bound = wait["reason"], wait["lead"], wait["bound"]
    sign = _SIGNS.get(reason)
    if sign is None:
        return f" ({reason.replace('-', ' ')}, lead {lead}, bound {bound})"
    return f" (lead {lead} {sign} bound {bound})"
