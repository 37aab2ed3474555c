"""Checkpoints of scripts without servers in virtual time: their models, and what they keep.

The models are in the simulation, and saved as those of a task. A script writes what it keeps when
it begins the first forward pass of an iteration (`engine.scripts.kept`). Between the place where
its program can be saved and that forward pass nothing changes its model.

Workers that average in pairs, or never, are saved together, when all but one are in the middle of
an iteration. So from the time when a checkpoint is due each script writes whenever it begins an
iteration, until all have written in the iteration that they are in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from outpace.blocks.block import Value
from outpace.config.checkpoint import Checkpoint
from outpace.engine.resuming import CheckpointKeeper, model_of
from outpace.record.checkpoints import Part
from outpace.simulation.awaited_scripts import AwaitedScripts
from outpace.simulation.peer_checkpoints import PeerSaving
from outpace.simulation.scripts.process import ScriptProcess
from outpace.sync.checkpoint.state import ShardState
from outpace.tasks import Workload

if TYPE_CHECKING:
    from outpace.simulation.peers import PeerSimulation


class ScriptPeerSaving(PeerSaving):
    """Takes the checkpoints of a run of scripts. Once a script has left it takes none any more.

    Args:
        initial: the parameters and averaged model buffers at the start of the run.
    """

    def __init__(
        self,
        run: PeerSimulation,
        workload: Workload,
        keeper: CheckpointKeeper,
        settings: Checkpoint,
        processes: Sequence[ScriptProcess],
        initial: Value,
    ) -> None:
        super().__init__(run, workload, keeper, settings)
        self._workers, self._initial = range(len(processes)), initial
        self._scripts = AwaitedScripts(run, keeper, processes=processes)
        self._has_left = False
        # Workers are saved apart, and each has written in this iteration; None: no script writes
        # in each iteration now.
        self._written_in: dict[int, int] | None = None

    def begin(self) -> None:
        if not self._number:
            self._write(self._run.state(dict.fromkeys(self._workers, 0), self._initial))

    @property
    def _can_begin(self) -> bool:
        return not (self._scripts.is_open or self._has_left)

    def _write(self, state: ShardState, own: Sequence[ShardState] = ()) -> None:
        if self._scripts.folder is None:
            if not self._begin_gathering():
                return
            self._scripts.ask(self._workers)
        taken = self._written(state, own, self._scripts.folder)
        if taken is None:
            self._scripts.forget()
        else:
            self._scripts.add_rest(taken, self._run.metrics.kept())

    # -- workers that are saved at different times -------------------------------------

    def _begin_gathering(self) -> bool:
        self._number += 1
        return self._scripts.open(self._number)

    def _gathered(self, worker: int) -> None:
        self._scripts.ask([worker])

    def apart(self, worker: int, iteration: int) -> None:
        self._begins[worker] = iteration
        if self._written_in is None:
            if self._is_due and self._can_begin and self._begin_gathering():
                self._is_due, self._written_in = False, {}
                self._scripts.ask(self._workers)
            return
        others = set(self._workers) - {worker}
        if any(self._written_in.get(each) != self._begins[each] for each in others):
            return
        self._written_in = None
        self._scripts.stop_asking(others)
        self._scripts.ask([worker])
        self._scripts.await_again(worker)
        self._write_apart()

    # -- what scripts do ---------------------------------------------------------------

    def script_saved(self, worker: int, saved: Part | str) -> None:
        """Take the file of a script, or why there is none."""
        if self._written_in is not None and isinstance(saved, Part):
            self._written_in[worker] = self._begins[worker]
            self._scripts.ask([worker])
        self._scripts.saved(worker, saved)
        if isinstance(saved, str):
            self._give_up()

    def leave(self, worker: int, after: int | None, results: int) -> None:
        """A script takes no more part in the training, so what it kept would be missing."""
        self._has_left = True
        self._give_up()

    def close(self) -> None:
        """Remove what is not complete."""
        self._scripts.abandon()

    def _give_up(self) -> None:
        self._open = self._written_in = None
        self._saved.clear()
        self._scripts.abandon()

    def _name_of(self, worker: int) -> str:
        return model_of(worker)
