"""The last checkpoint of a run with failures, which is kept to begin again from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from outpace.record.recovery import Recovery
from outpace.record.totals import Totals
from outpace.simulation.faults.held_rows import HeldRows
from outpace.support.units import Time
from outpace.sync.checkpoint.state import ShardState


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """All that a run needs to go on from a checkpoint, in the memory of this process.

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
