"""The last checkpoint of a run with failures, and the rows of the trace since then.

If all processes begin again from the checkpoint, the rows are taken back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

import pyarrow as pa

from outpace.record.event_log import Recovery
from outpace.record.totals import Totals
from outpace.record.trace import ITERATION, Trace, TraceRows, unpacked
from outpace.support.units import Time
from outpace.sync.checkpoint.state import ShardState

# the first columns of the row of an iteration: event, worker, shard, iteration
_BEGIN: Final = Struct("4q")


class EndedIteration(NamedTuple):
    """The times of an iteration (ns). held: how long its worker waited for others."""

    started: Time
    finished: Time
    computed: Time
    held: Time


class HeldRows(TraceRows):
    """Holds the rows since the last checkpoint. Its memory grows with the time between two."""

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
        """Pass on the rows until a checkpoint: the first `count` of the rows that are held.

        A worker that was saved before the others has continued since then: its later iterations are
        still held. A worker may be saved at the end of an iteration, before the row of that
        iteration is recorded; if the row is held now, it is passed on as well.

        Args:
            first: the iteration with which each worker begins if the run goes back.

        Returns:
            The iterations whose rows are still held, and those whose rows are passed on in
            addition.
        """
        until, since = self._rows[:count], self._rows[count:]
        later = [row for row in until if _is_ended(row, first) is False]
        before = [row for row in since if _is_ended(row, first)]
        self._trace.extend([row for row in until if _is_ended(row, first) is not False] + before)
        self._rows[:] = later + [row for row in since if not _is_ended(row, first)]
        return _times(later), _times(before)

    def go_back(self, first: Sequence[int]) -> list[EndedIteration]:
        """Forget the rows that are kept, except for iterations that will not be repeated.

        Args:
            first: see `release`.

        Returns:
            The iterations whose rows are not forgotten.
        """
        self._rows[:] = [row for row in self._rows if _is_ended(row, first)]
        return _times(self._rows)

    def flush(self) -> None:
        self._trace.extend(self._rows)
        self._rows.clear()

    def _hand_on_chunks(self) -> None:
        """Keep all rows; do not pass on chunks."""


@dataclass(frozen=True, slots=True, eq=False)
class CheckpointInMemory:
    """All that a run needs to begin again from a checkpoint, in the memory of this process.

    number, now: number and time of the checkpoint. first: the first iteration of each worker after
    it. rows: number of rows of the trace that were held at that time.
    """

    number: int
    now: Time
    states: Sequence[ShardState]
    first: Sequence[int]
    totals: Totals
    metrics: pa.Table
    recovery: Recovery
    rows: int
    own: Sequence[ShardState] = ()  # states of workers without servers

    def hand_on(self, rows: HeldRows) -> None:
        """Pass on the rows that this checkpoint includes; make its sums agree with them."""
        stay, handed_on = rows.release(self.rows, self.first)
        for ended in stay:
            self.totals.add_times(*ended, sign=-1)
        for ended in handed_on:
            self.totals.add_times(*ended)


def _is_ended(row: bytes, first: Sequence[int]) -> bool | None:
    """Return whether the iteration of a row is before the first one of its worker.

    None: it is the row of another event.
    """
    event, worker, _, iteration = _BEGIN.unpack_from(row)
    return iteration < first[worker] if event == ITERATION else None


def _times(rows: Sequence[bytes]) -> list[EndedIteration]:
    found = map(unpacked, rows)
    return [
        EndedIteration(row["start_ns"], row["end_ns"], row["computed_ns"], row["held_ns"])
        for row in found
    ]
