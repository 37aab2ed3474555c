"""Takes the checkpoints of a run in virtual time without servers whose workers fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from outpace.config.checkpoint import Checkpoint
from outpace.engine.resuming import CheckpointKeeper
from outpace.simulation.faults.saving import Kept, size_of
from outpace.simulation.peer_checkpoints import PeerSaving
from outpace.sync.checkpoint.state import ShardState
from outpace.tasks import Workload

if TYPE_CHECKING:
    from outpace.simulation.faults.peers import FailingPeerSimulation


class KeptPeerSaving(PeerSaving):
    """Takes the checkpoints of a run with failures, and writes them too if there is a keeper.

    Attributes:
        last: from which the run goes on; None: there is none yet.
    """

    def __init__(
        self,
        run: FailingPeerSimulation,
        workload: Workload,
        keeper: CheckpointKeeper | None,
        settings: Checkpoint,
    ) -> None:
        super().__init__(run, workload, keeper, settings)
        self._failing = run
        self.last: Kept | None = None

    def begin(self) -> None:
        if self._number:  # the run was resumed from this one
            resume = self._failing.resume
            assert resume is not None
            workers = len(resume.first)
            own = [resume.checkpoint.own_state(worker, workers) for worker in range(workers)]
            found = [state for state in own if state is not None]
            self.last = Kept.of(self._failing, self._number, [resume.state(0)], found)
        super().begin()

    @property
    def _can_begin(self) -> bool:
        return not self._failing.away  # their parts would be missing

    def give_up(self) -> None:
        """Begin the open checkpoint anew when the worker is back that is lost now."""
        if self._open is not None:
            self._open, self._is_due = None, True

    def joins(self, worker: int, first: int) -> None:
        """A worker that was lost goes on with this iteration."""
        self._begins[worker] = first

    def apart(self, worker: int, iteration: int) -> None:
        if self._can_begin:
            super().apart(worker, iteration)
        else:
            self._begins[worker] = iteration

    def begin_again(self, kept: Kept) -> None:
        """Go on with the models of the last checkpoint."""
        self._is_due, self._open = False, None
        self._passed = kept.states[0].version
        self._saved.clear()
        self._gone.clear()
        self._begins = dict(enumerate(kept.first))

    def soon(self) -> None:
        if not self._failing.is_down:
            super().soon()

    def _write(self, state: ShardState, own: Sequence[ShardState] = ()) -> None:
        failing = self._failing
        kept = Kept.of(failing, self._number + 1, [state], own)
        for worker, mark in enumerate(state.watermarks):
            iterations = kept.totals.iterations
            iterations[worker] = min(1 + mark, iterations.get(worker, 0))
        failing.rows.release(kept.rows)
        if self._keeper is None:
            self._number += 1
        else:
            super()._write(state, own)
        self.last = kept
        largest = max(map(size_of, own), default=0)
        writing = failing.stand_still_to_write(max(size_of(state), largest))
        failing.checkpoint_written(writing, still=writing)
