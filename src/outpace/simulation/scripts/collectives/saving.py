"""Checkpoints of scripts for DistributedDataParallel in virtual time.

All workers have the same parameters between two steps, and the same number of steps. So they are
saved after the same step: each script writes its model, the state of its own optimizer and what it
keeps when it begins the iteration that follows. The model of worker 0 is that of the checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from outpace.config.checkpoint import Checkpoint
from outpace.engine.resuming import CheckpointKeeper, kept_in
from outpace.record.checkpoints import Part, write_shard
from outpace.record.checkpoints.trees import read_tree
from outpace.simulation.awaited_scripts import AwaitedScripts
from outpace.simulation.checkpoints import Written, written_now
from outpace.simulation.peer_checkpoints import count_until
from outpace.simulation.scripts.process import ScriptProcess
from outpace.sync.checkpoint.workers import common_state
from outpace.tasks import Workload

if TYPE_CHECKING:
    from outpace.simulation.virtual import VirtualRun


class FollowedSaving:
    """Takes the checkpoints of a run. Once a script has left it takes none any more."""

    def __init__(
        self,
        run: VirtualRun,
        workload: Workload,
        keeper: CheckpointKeeper,
        settings: Checkpoint,
        processes: Sequence[ScriptProcess],
    ) -> None:
        self._run, self._workload, self._keeper = run, workload, keeper
        self._every, self._workers = settings.every_updates, range(len(processes))
        self._scripts = AwaitedScripts(run, keeper, processes=processes)
        self._number = keeper.last
        self._passed = 0 if run.resume is None else run.resume.first[0]  # steps
        self._steps = 0  # after which the scripts are saved
        self._is_due = self._has_left = False

    def begin(self) -> None:
        """Take the first checkpoint of a run that has none; before any event."""
        if not self._number:
            self._begin_at(0)

    def soon(self) -> None:
        """Take one after the next step. May be called by a signal handler."""
        self._is_due = True

    def look(self, steps: int) -> None:
        """Begin a checkpoint if one is due: a worker has taken so many steps."""
        if steps <= self._passed:  # another worker has taken them before
            return
        self._passed = steps
        if self._every is not None and steps % self._every == 0:
            self._is_due = True
        if self._is_due and not (self._scripts.is_open or self._has_left):
            self._is_due = False
            self._begin_at(steps)

    def _begin_at(self, steps: int) -> None:
        self._number += 1
        if self._scripts.open(self._number):
            self._steps = steps
            self._scripts.ask(self._workers)

    def script_saved(self, worker: int, saved: Part | str) -> None:
        """Take the file of a script, or why there is none."""
        self._scripts.saved(worker, saved)
        if self._scripts.lacks_models:
            self._write_model()

    def _write_model(self) -> None:
        folder = self._scripts.folder
        assert folder is not None
        model, gradients = read_tree(folder / kept_in(0))["model"], self._run.totals.applied
        begins = dict.fromkeys(self._workers, self._steps)
        state = common_state(begins, self._steps, gradients, model, {})

        def put(folder: Path) -> Written:
            record, part = write_shard(folder, state, name="common")
            return Written([record], [part])

        taken = written_now(self._run, self._workload, self._keeper, self._number, put, folder)
        if taken is None:
            self._scripts.forget()
            return
        count_until(state.watermarks, taken.totals.iterations)
        self._scripts.add_rest(taken, self._run.metrics.kept())

    def leave(self) -> None:
        """A script takes no more part in the training, so what it kept would be missing."""
        self._has_left = True
        self._scripts.abandon()

    def close(self) -> None:
        """Remove what is not complete."""
        self._scripts.abandon()
