"""The events of a trace inside given spans of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outpace.report.read.batches import NULL, Columns, batches, is_event, rows_of
from outpace.report.read.errors import reading

_ITERATION: Final = ("worker", "shard", "iteration", "start_ns", "computed_ns", "end_ns", "held_ns")
_PULL: Final = (
    "worker",
    "shard",
    "iteration",
    "start_ns",
    "end_ns",
    "released_by",
    "lead",
    "bound",
)
_PUSH: Final = ("worker", "iteration", "start_ns")
_CLOSED: Final = ("iteration", "start_ns", "end_ns", "clock")
_REDUCTION: Final = (
    "worker",
    "iteration",
    "start_ns",
    "computed_ns",
    "end_ns",
    "version",
    "clock",
)
_UNUSED: Final = pa.array(["abstained", "dropped"])  # outcomes of a push


@dataclass(frozen=True)
class Events:
    """The events that overlap a span of time, in columns."""

    iterations: Columns
    waits: Columns  # pulls that were held until a worker's push
    reasons: list[str]  # why the policy held them
    closed: Columns  # iterations that a scheduler closed; clock: the gradients that counted
    unused: dict[tuple[int, int], str]  # (worker, iteration) -> why the gradient did not count
    reductions: Columns  # all-reduces of each worker; computed_ns: when all had joined


def read_events(path: Path, spans: Sequence[tuple[int, int]]) -> list[Events]:
    """Return the events in each of these spans of time (ns). Raises Unreadable."""
    found = [_Span(low, high) for low, high in spans]
    columns = {"event", *_ITERATION, *_PULL, *_REDUCTION, "reason", "outcome"}
    with reading(path):
        for batch in batches(path, columns, [(span.early, span.late) for span in found]):
            for span in found:
                span.add(batch)
    return [span.events() for span in found]


class _Span:
    """Collects the events from `low` to `high`.

    The wait and the push of an iteration that reaches into the span may lie outside the span, so
    waits and pushes are collected from `early` to `late`.
    """

    def __init__(self, low: int, high: int) -> None:
        self._low, self._high = low, high
        self.early, self.late = 2 * low - high, 2 * high - low
        self._iterations: list[Columns] = []
        self._waits: list[Columns] = []
        self._reasons: list[str] = []
        self._closed: list[Columns] = []
        self._unused: dict[tuple[int, int], str] = {}
        self._reductions: list[Columns] = []

    def add(self, batch: pa.RecordBatch) -> None:
        for event, names, kept in (
            ("iteration", _ITERATION, self._iterations),
            ("cut-off", _CLOSED, self._closed),
            ("all-reduce", _REDUCTION, self._reductions),
        ):
            rows = rows_of(batch, event, names)
            inside = (rows["end_ns"] > self._low) & (rows["start_ns"] < self._high)
            kept.append({name: column[inside] for name, column in rows.items()})
        pulls = rows_of(batch, "pull", _PULL)
        near = (pulls["end_ns"] != NULL) & (pulls["released_by"] != NULL)
        near &= (pulls["end_ns"] > self.early) & (pulls["start_ns"] < self._high)
        self._waits.append({name: column[near] for name, column in pulls.items()})
        if near.any():
            reasons = batch["reason"].filter(is_event(batch, "pull")).filter(pa.array(near))
            self._reasons += [str(reason) for reason in reasons.to_pylist()]
        self._add_pushes(batch)

    def _add_pushes(self, batch: pa.RecordBatch) -> None:
        pushes = rows_of(batch, "push", _PUSH)
        outcome = batch["outcome"].filter(is_event(batch, "push")).cast(pa.string())
        near = (pushes["start_ns"] > self.early) & (pushes["start_ns"] < self.late)
        near &= pc.is_in(outcome, value_set=_UNUSED).to_numpy(zero_copy_only=False)
        if near.any():
            keys = zip(*(pushes[name][near].tolist() for name in _PUSH[:2]), strict=True)
            self._unused.update(zip(keys, outcome.filter(pa.array(near)).to_pylist(), strict=True))

    def events(self) -> Events:
        return Events(
            _joined(_ITERATION, self._iterations),
            _joined(_PULL, self._waits),
            self._reasons,
            _joined(_CLOSED, self._closed),
            self._unused,
            _joined(_REDUCTION, self._reductions),
        )


def _joined(names: Sequence[str], parts: Sequence[Columns]) -> Columns:
    return {
        name: np.concatenate([part[name] for part in parts] or [np.zeros(0, np.int64)])
        for name in names
    }
