"""Takes the checkpoints of a run in virtual time without servers whose workers fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from outpace.simulation.faults.saving import Kept, size_of
from outpace.simulation.peer_checkpoints import PeerSaving, count_until
from outpace.sync.checkpoint.state import ShardState

if TYPE_CHECKING:
    from outpace.simulation.faults.peers import FailingPeerSimulation


class KeptPeerSaving(PeerSaving):
    """Takes the checkpoints of a run with failures, and writes them too if there is a keeper.

    Attributes:
        last: from which the run goes on, and to which all workers may go back; None: there is none.
    """

    _run: FailingPeerSimulation
    last: Kept | None = None

    def begin(self) -> None:
        if self._number:  # the run was resumed from this one
            resume = self._run.resume
            assert resume is not None
            own = [state for state in resume.own_states() if state is not None]
            self.last = Kept.of(self._run, self._number, [resume.state(0)], own)
        super().begin()

    def begin_again(self, kept: Kept) -> None:
        """Go on with the models of the last checkpoint."""
        self._is_due, self._results = False, None
        self._passed = kept.states[0].version
        self._saved.clear()
        self._gone.clear()
        self._begins = dict(enumerate(kept.first))

    def soon(self) -> None:
        if not self._run.is_down:
            super().soon()

    def _write(self, state: ShardState, own: Sequence[ShardState] = ()) -> None:
        run = self._run
        kept = Kept.of(run, self._number + 1, [state], own)
        count_until(state.watermarks, kept.totals.iterations)
        kept.hand_on(run.held_rows)
        if self._keeper is None:
            self._number += 1
        else:
            super()._write(state, own)
        self.last = kept
        writing = run.let_workers_write(max(map(size_of, (state, *own))))
        run.checkpoint_written(writing, still=writing)
