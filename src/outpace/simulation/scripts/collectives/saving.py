"""Checkpoints of scripts for DistributedDataParallel in virtual time.

All workers have the same parameters between two steps, and the same number of steps. So they are
saved after the same step: each script writes its model, the state of its own optimizer and what it
keeps when it begins the iteration that follows. The model of worker 0 is that of the checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import torch

from outpace.config.checkpoint import Checkpoint
from outpace.engine.resuming import CheckpointKeeper, kept_in
from outpace.record.checkpoints import Part
from outpace.record.checkpoints.trees import read_tree
from outpace.simulation.scripts.process import ScriptProcess
from outpace.simulation.scripts.without_servers.saving import ScriptPeerSaving
from outpace.sync.checkpoint.workers import common_state
from outpace.tasks import Workload

if TYPE_CHECKING:
    from outpace.simulation.peers import PeerSimulation
    from outpace.simulation.virtual import VirtualRun


class FollowedSaving(ScriptPeerSaving):
    """Takes the checkpoints of a run. Once a script has left it takes none any more."""

    def __init__(
        self,
        run: VirtualRun,
        workload: Workload,
        keeper: CheckpointKeeper,
        settings: Checkpoint,
        processes: Sequence[ScriptProcess],
    ) -> None:
        # The models are in the processes, so a run of tasks is asked for nothing.
        peers = cast("PeerSimulation", run)
        super().__init__(peers, workload, keeper, settings, processes, torch.empty(0))
        self._passed = 0 if run.resume is None else run.resume.first[0]  # steps
        self._steps = 0  # after which the scripts are saved
        self._missing: set[int] = set()  # workers

    @property
    def _rule(self) -> None:
        """A script that is followed keeps its strategy."""

    def begin(self) -> None:
        if not self._number:
            self._begin_at(0)

    def look(self, worker: int, iteration: int, results: int) -> None:
        if results > self._passed:  # the first worker that has taken so many steps
            self.updated(results)
        if self._is_time(results):
            self._begin_at(iteration)

    def _begin_at(self, steps: int) -> None:
        if self._begin_folder():
            self._steps, self._missing = steps, set(range(len(self._processes)))
            self._ask(self._missing)

    def script_saved(self, worker: int, saved: Part | str) -> None:
        super().script_saved(worker, saved)
        self._missing.discard(worker)
        if self._folder is not None and not self._missing:
            self._write_models()

    def _write_models(self) -> None:
        assert self._folder is not None
        workers = range(len(self._processes))
        model = read_tree(self._folder / kept_in(0))["model"]
        gradients = self._run.totals.applied
        state = common_state(dict.fromkeys(workers, self._steps), self._steps, gradients, model, {})
        self._write(state)
