"""Takes the checkpoints of a run in virtual time without servers whose workers fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from outpace.simulation.faults.saving import Kept, size_of
from outpace.simulation.peer_checkpoints import PeerSaving, count_until
from outpace.sync.checkpoint.state import ShardState

if TYPE_CHECKING:
    from outpace.simulation.faults.peer_failures import PeerFailures


class KeptPeerSaving(PeerSaving):
    """Takes the checkpoints of a run with failures, and writes them too if there is a keeper."""

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
