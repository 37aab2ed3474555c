"""Checkpoints of a run with servers and failures; the last one is kept, to begin again from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import torch

from outpace.record.recovery import Recovery
from outpace.record.totals import Totals
from outpace.simulation.faults.held_rows import HeldRows
from outpace.simulation.server_checkpoints import ServerSaving
from outpace.support.units import Time
from outpace.sync.checkpoint.planner import CutPlanner
from outpace.sync.checkpoint.state import ShardState, aligned, first_iteration

if TYPE_CHECKING:
    from outpace.simulation.faults.server_failures import ServerFailures
    from outpace.simulation.virtual import VirtualRun


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

    @classmethod
    def of(
        cls,
        run: VirtualRun,
        number: int,
        states: Sequence[ShardState],
        own: Sequence[ShardState],
        rows: int,
    ) -> Kept:
        """Return what is to be kept of a run now. rows: of its trace that are held."""
        run.settle(wait=True)  # the evaluations until now
        totals = Totals()
        totals.add(run.totals)
        if run.experiment.cut_off is not None:
            states = aligned(states)
        workers = range(run.experiment.workers)
        if run.experiment.peers is None:
            first = [first_iteration(worker, states) for worker in workers]
        else:
            first = [1 + states[0].watermarks[worker] for worker in workers]
        return cls(
            number=number,
            now=run.kernel.now,
            states=states,
            own=own,
            first=first,
            totals=totals,
            metrics=run.metrics.kept(),
            recovery=run.recovery(),
            rows=rows,
        )

    def hand_on(self, rows: HeldRows) -> None:
        """Hand on the rows of all that this checkpoint has; let its sums be those of the rows."""
        stay, handed_on = rows.release(self.rows, self.first)
        for ended in stay:
            self.totals.add_times(*ended, sign=-1)
        for ended in handed_on:
            self.totals.add_times(*ended)


class KeptSaving(ServerSaving):
    """Takes the checkpoints of a run with failures, and writes them too if there is a keeper.

    While one is written the servers stand still (`Recovery.writing_s`); it counts at the end.
    """

    _coming: Kept | None = None  # it is being written
    _writing: Time = 0  # for which the servers stand still for it

    def __init__(self, life: ServerFailures, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._life = life

    def begin(self) -> None:
        if self._number:  # the run was resumed from this one
            states = [shard.state() for shard in self._shards]
            self._life.last_checkpoint = self._life.kept(self._number, states)
        super().begin()

    def now(self) -> None:
        if not self._life.is_down:
            super().now()

    def begin_again(self) -> None:
        """Go on with the shards of the last checkpoint; the one under way is given up."""
        self.abandon()
        self._planner = CutPlanner(len(self._shards), self._is_exact, self._planner.number)
        self._is_due = False
        self._clock = self._shards[0].clock

    def abandon(self) -> None:
        """Give up the checkpoint under way."""
        self._follow(self._planner.abandon())
        self._states.clear()
        self._writing = 0
        self.close()

    @property
    def is_taking(self) -> bool:
        return self._coming is not None or super().is_taking

    def _saved(self, server: int, number: int, state: ShardState) -> None:
        self._writing += self._life.stand_still_to_write(server, size_of(state))
        super()._saved(server, number, state)

    def _write(self, number: int, states: Sequence[ShardState]) -> None:
        kept = self._coming = self._life.kept(number, states)
        if self._keeper is not None:
            self._open.is_held = True
            super()._write(number, states)
        kernel, until = self._life.kernel, self._life.servers_stand_until
        if until > kernel.now:
            kernel.call_at(until, self._complete, kept)
        else:
            self._complete(kept)

    def _complete(self, kept: Kept) -> None:
        if self._coming is not kept:
            return  # it was given up
        if not self._life.all_servers_live:
            self.close()  # one has died while it wrote
            return
        self._coming = None
        self._life.keep(kept)
        self._life.checkpoint_written(self._writing)
        self._writing = 0
        self._open.release()

    def close(self) -> None:
        self._coming = None
        super().close()


def size_of(state: ShardState) -> int:
    """Return the bytes of the parameters and of what the optimizer remembers."""
    return state.parameters.nbytes + _bytes_in(state.optimizer)


def _bytes_in(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.nbytes
    if isinstance(value, dict):
        return sum(map(_bytes_in, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_bytes_in, value))
    return 0
