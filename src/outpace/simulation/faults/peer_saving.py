"""Takes the checkpoints of a run in virtual time without servers whose workers fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from outpace.config.checkpoint import Checkpoint
from outpace.engine.resuming import CheckpointKeeper
from outpace.simulation.faults.saving import Kept, size_of
from outpace.simulation.peer_checkpoints import PeerSaving, count_until
from outpace.support.units import Time
from outpace.sync.checkpoint.state import ShardState
from outpace.tasks import Workload

if TYPE_CHECKING:
    from outpace.simulation.faults.peers import FailingPeerSimulation


class KeptPeerSaving(PeerSaving):
    """Takes the checkpoints of a run with failures, and writes them too if there is a keeper.

    Attributes:
        last: from which the run goes on, and to which all workers may go back; None: there is none.
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
            self.last = self._before()
        super().begin()

    def _before(self) -> Kept:
        """Return the checkpoint from which the run was resumed."""
        resume = self._failing.resume
        assert resume is not None
        found = [state for state in resume.own_states() if state is not None]
        shards = [resume.state(0)]
        return Kept.of(self._failing, self._number, shards, found)

    def _taken(self, number: int, state: ShardState, own: Sequence[ShardState]) -> Kept:
        """Return what is to be kept of the run now, as the checkpoint of this number."""
        kept = Kept.of(self._failing, number, [state], own)
        count_until(state.watermarks, kept.totals.iterations)
        return kept

    def _stand_still(self, state: ShardState, own: Sequence[ShardState]) -> Time:
        """Let all workers stand still to write; return for how long (ns)."""
        largest = max(map(size_of, own), default=0)
        return self._failing.let_workers_write(max(size_of(state), largest))

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
        kept = self._taken(self._number + 1, state, own)
        kept.hand_on(failing.held_rows)
        if self._keeper is None:
            self._number += 1
        else:
            super()._write(state, own)
        self.last = kept
        writing = self._stand_still(state, own)
        failing.checkpoint_written(writing, still=writing)
