"""Checkpoints of scripts without servers in virtual time: their models, and what they keep.

The models are in the simulation, and saved as those of a task. A script writes what it keeps when
it begins the first forward pass of an iteration (`engine.scripts.kept`). Between the place where
its program can be saved and that forward pass nothing changes its model.

Workers that average in pairs, or never, are saved together, when all but one are in the middle of
an iteration. So from the time when a checkpoint is due each script writes whenever it begins an
iteration, until all have written in the iteration that they are in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from outpace.blocks.block import Value
from outpace.config.checkpoint import Checkpoint
from outpace.engine.resuming import CheckpointKeeper, kept_in, model_of
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
        self._files, self._processes, self._initial = keeper, processes, initial
        self._scripts = AwaitedScripts(run, keeper)
        self._folder: Path | None = None  # of the checkpoint that is not complete
        self._has_left = False
        # Workers are saved apart, and each has written in this iteration; None: no script writes
        # in each iteration now.
        self._written_in: dict[int, int] | None = None

    def begin(self) -> None:
        if not self._number:
            workers = range(len(self._processes))
            self._write(self._run.state(dict.fromkeys(workers, 0), self._initial))

    @property
    def _can_begin(self) -> bool:
        return not (self._scripts.is_open or self._has_left)

    def _write(self, state: ShardState, own: Sequence[ShardState] = ()) -> None:
        workers = range(len(self._processes))
        if self._folder is None:
            if not self._begin_folder():
                return
            self._ask(workers)
        folder, self._folder = self._folder, None
        taken = self._written(state, own, folder)
        if taken is None:
            self._scripts.forget()
            self._stop_asking(workers)
        else:
            self._scripts.add_rest(taken, self._run.metrics.kept())

    def _begin_folder(self) -> bool:
        """Begin a checkpoint that waits for all scripts; False if the disk is full."""
        self._number += 1
        try:
            self._folder = self._files.begin(self._number)
        except OSError as error:
            self._files.abandon(self._number, error.strerror or str(error))
            return False
        self._scripts.begin(self._number, range(len(self._processes)))
        return True

    def _ask(self, workers: Iterable[int]) -> None:
        """Have scripts write what they keep when they begin their next iteration."""
        assert self._folder is not None
        for worker in workers:
            self._processes[worker].save = (self._folder / kept_in(worker)).absolute()

    def _stop_asking(self, workers: Iterable[int]) -> None:
        for worker in workers:
            self._processes[worker].save = None

    # -- workers that are saved at different times -------------------------------------

    def _begin_gathering(self) -> bool:
        return self._begin_folder()

    def _gathered(self, worker: int) -> None:
        self._ask([worker])

    def apart(self, worker: int, iteration: int) -> None:
        self._begins[worker] = iteration
        workers = set(range(len(self._processes)))
        if self._written_in is None:
            if self._is_due and self._can_begin and self._begin_folder():
                self._is_due, self._written_in = False, {}
                self._ask(workers)
            return
        others = workers - {worker}
        if any(self._written_in.get(each) != self._begins[each] for each in others):
            return
        self._written_in = None
        self._stop_asking(others)
        self._ask([worker])
        self._scripts.await_again(worker)
        self._write_apart()

    # -- what scripts do ---------------------------------------------------------------

    def script_saved(self, worker: int, saved: Part | str) -> None:
        """Take the file of a script, or why there is none."""
        if self._written_in is not None and isinstance(saved, Part):
            self._written_in[worker] = self._begins[worker]
            self._ask([worker])
        self._scripts.saved(worker, saved)
        if isinstance(saved, str):
            self._give_up()

    def leave(self, worker: int, after: int | None, results: int) -> None:
        """A script takes no more part in the training, so what it kept would be missing."""
        self._has_left = True
        self._scripts.abandon()
        self._give_up()

    def close(self) -> None:
        """Remove what is not complete."""
        self._scripts.abandon()

    def _give_up(self) -> None:
        self._folder = self._open = self._written_in = None
        self._saved.clear()
        self._stop_asking(range(len(self._processes)))

    def _name_of(self, worker: int) -> str:
        return model_of(worker)
