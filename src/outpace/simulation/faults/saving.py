"""Checkpoints of a run with failures: the last one is kept, to begin again from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import torch

from outpace.record.recovery import Recovery
from outpace.record.totals import Totals
from outpace.simulation.faults.held_rows import HeldRows
from outpace.simulation.peer_checkpoints import PeerSaving, count_until
from outpace.simulation.server_checkpoints import ServerSaving
from outpace.support.units import Time
from outpace.sync.checkpoint.planner import CutPlanner
from outpace.sync.checkpoint.state import ShardState

if TYPE_CHECKING:
    from outpace.simulation.faults.peer_failures import PeerFailures
    from outpace.simulation.faults.server_failures import ServerFailures


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


class KeptServerSaving(ServerSaving):
    """Takes the checkpoints of a run with servers, and writes them too if there is a keeper.

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

    def begin_again(self, kept: Kept) -> None:
        """Go on with the shards of the last checkpoint; the one under way is given up."""
        self._follow(self._planner.abandon())
        self._states.clear()
        self._writing = 0
        self.close()
        self._planner = CutPlanner(len(self._shards), self._is_exact, self._planner.number)
        self._is_due = False
        self._clock = self._shards[0].clock

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


class KeptPeerSaving(PeerSaving):
    """Takes the checkpoints of a run without servers, and writes them too if there is a keeper."""

    def __init__(self, life: PeerFailures, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._life = life

    def begin(self) -> None:
        if self._number:  # the run was resumed from this one
            resume = self._run.resume
            assert resume is not None
            own = [state for state in resume.own_states() if state is not None]
            life = self._life
            life.last_checkpoint = life.kept(self._number, [resume.state(0)], own)
        super().begin()

    def begin_again(self, kept: Kept) -> None:
        """Go on with the models of the last checkpoint."""
        self._is_due, self._results = False, None
        self._passed = kept.states[0].version
        self._saved.clear()
        self._gone.clear()
        self._begins = dict(enumerate(kept.first))

    def soon(self) -> None:
        if not self._life.is_down:
            super().soon()

    def _write(self, state: ShardState, own: Sequence[ShardState] = ()) -> None:
        life = self._life
        kept = life.kept(self._number + 1, [state], own)
        count_until(state.watermarks, kept.totals.iterations)
        life.keep(kept)
        if self._keeper is None:
            self._number += 1
        else:
            super()._write(state, own)
        writing = life.let_workers_write(max(map(size_of, (state, *own))))
        life.checkpoint_written(writing, still=writing)


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
