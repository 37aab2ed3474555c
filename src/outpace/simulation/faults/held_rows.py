"""The last checkpoint of a run with failures, and the rows of the trace since then.

If all processes begin again from the checkpoint, the rows are taken back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from outpace.record.totals import Recovery, Totals
from outpace.record.trace import ITERATION, Table, Trace, TraceRows
from outpace.support.units import Time
from outpace.sync.checkpoint.state import ShardState

Places: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


class EndedIteration(NamedTuple):
    """The times of an iteration (ns). held: how long its worker waited for others."""

    started: Time
    finished: Time
    computed: Time
    held: Time


class HeldRows(TraceRows):
    """Holds the rows since the last checkpoint. Its memory grows with the interval in between."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(trace.add)
        self._trace = trace

    @property
    def held(self) -> int:
        """The number of rows that are kept."""
        return len(self._rows)

    def release(
        self, count: int, first: Sequence[int]
    ) -> tuple[list[EndedIteration], list[EndedIteration]]:
        """Hand on the rows until a checkpoint, the first `count` of those that are kept.

        A worker that was saved before the others has continued meanwhile: its later iterations stay
        here. One is saved in the iteration that it ends, whose row comes after that: if it is here
        it is handed on, too.

        Args:
            first: the iteration with which each worker begins if the run goes back.

        Returns:
            The iterations whose rows stay, and those whose rows are handed on, too.
        """
        self._trace.flush()  # earlier rows
        rows = self._table()
        until, since = rows[:count], rows[count:]
        _, is_later = _sides(until, first)
        is_before, _ = _sides(since, first)
        self._keep(np.concatenate([until[is_later], since[~is_before]]))
        if len(handed_on := np.concatenate([until[~is_later], since[is_before]])):
            self._take(handed_on)
        return _times(until[is_later]), _times(since[is_before])

    def go_back(self, first: Sequence[int]) -> list[EndedIteration]:
        """Forget the rows that are kept, but for iterations that will not be repeated.

        Args:
            first: as for `release`.

        Returns:
            The iterations whose rows are not forgotten.
        """
        rows = self._table()
        stay = rows[_sides(rows, first)[0]]
        self._keep(stay)
        return _times(stay)

    def flush(self) -> None:
        self._trace.flush()
        rows = self._table()
        self._keep(rows[:0])
        if len(rows):
            self._take(rows)

    def _hand_on_chunks(self) -> None:
        """Keep all rows."""

    def _keep(self, rows: Table) -> None:
        self._rows[:] = [row.tobytes() for row in rows]


@dataclass(frozen=True, slots=True, eq=False)
class CheckpointInMemory:
    """All that a run needs to begin again from a checkpoint, in the memory of this process.

    number, now, first: as in `engine.interruptions.Stored`. rows: of the trace that were held then.
    """

    number: int
    now: Time
    states: Sequence[ShardState]
    first: Sequence[int]
    totals: Totals
    metrics: pa.Table
    recovery: Recovery
    rows: int
    own: Sequence[ShardState] = ()  # of workers without servers

    def hand_on(self, rows: HeldRows) -> None:
        """Hand on the rows of all that this checkpoint has; let its sums be those of the rows."""
        stay, handed_on = rows.release(self.rows, self.first)
        for ended in stay:
            self.totals.add_times(*ended, sign=-1)
        for ended in handed_on:
            self.totals.add_times(*ended)


def _sides(rows: Table, first: Sequence[int]) -> tuple[Places, Places]:
    """Return which rows are of iterations before the first ones of their workers, and which not."""
    before, later = (np.zeros(len(rows), dtype=np.bool_) for _ in range(2))
    (places,) = np.nonzero(rows[:, 0] == ITERATION)
    is_before = rows[places, 3] < np.asarray(first)[rows[places, 1]]
    before[places], later[places] = is_before, ~is_before
    return before, later


def _times(rows: Table) -> list[EndedIteration]:
    return [EndedIteration(*map(int, row[4:8])) for row in rows]
