"""Checkpoints of scripts for DistributedDataParallel in virtual time.

All workers have the same parameters between two steps, and the same number of steps. So they are
saved after the same step: each script writes its model, the state of its own optimizer and what it
keeps when it begins the iteration that follows. The model of worker 0 is that of the checkpoint.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from outpace.config.checkpoint import Checkpoint
from outpace.engine.keeper import CheckpointKeeper
from outpace.engine.resuming import kept_in
from outpace.record.checkpoints import Part, write_shard
from outpace.record.checkpoints.trees import read_tree
from outpace.simulation.checkpoints import Saving, Written
from outpace.simulation.peer_checkpoints import count_until
from outpace.sync.checkpoint.workers import common_state
from outpace.tasks import Workload

if TYPE_CHECKING:
    from outpace.simulation.virtual import VirtualRun


class FollowedSaving(Saving):
    """Takes the checkpoints of a run. Once a script has left it takes none any more."""

    def __init__(
        self,
        run: VirtualRun,
        workload: Workload,
        keeper: CheckpointKeeper | None,
        settings: Checkpoint,
    ) -> None:
        super().__init__(run, workload, keeper, settings)
        self._run = run
        self._passed = 0 if run.resume is None else run.resume.first[0]  # steps
        self._steps = 0  # after which the scripts are saved
        self._has_left = False

    def begin(self) -> None:
        if not self._number:
            self._begin_at(0)

    def updated(self, version: int) -> None:
        """Do nothing: `look` counts the steps of the first worker that has taken them."""

    def look(self, steps: int) -> None:
        """Begin a checkpoint if one is due: a worker has taken so many steps."""
        if steps <= self._passed:  # another worker has taken them before
            return
        self._passed = steps
        super().updated(steps)
        if self._is_due and not (self._open.is_open or self._has_left):
            self._is_due = False
            self._begin_at(steps)

    def _begin_at(self, steps: int) -> None:
        self._number += 1
        if self._open.begin(self._number):
            self._steps = steps
            self._open.ask(self._workers)

    def script_saved(self, worker: int, saved: Part | str) -> None:
        super().script_saved(worker, saved)
        if self._open.lacks_models_only:
            self._write_model()

    def _write_model(self) -> None:
        folder = self._open.folder
        assert folder is not None
        model, gradients = read_tree(folder / kept_in(0))["model"], self._run.totals.applied
        begins = dict.fromkeys(self._workers, self._steps)
        state = common_state(begins, self._steps, gradients, model, {})

        def put(folder: Path) -> Written:
            record, part = write_shard(folder, state, name="common")
            return Written([record], [part])

        taken = self._open.write(put)
        if taken is not None:
            count_until(state.watermarks, taken.totals.iterations)
            self._open.add_models(taken)

    def leave(self) -> None:
        """A script takes no more part in the training, so what it kept would be missing."""
        self._has_left = True
        self._open.abandon()
