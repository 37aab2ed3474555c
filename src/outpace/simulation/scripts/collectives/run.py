"""Runs in virtual time of scripts whose own collectives and optimizers do the training."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from outpace.blocks.block import Block, Value
from outpace.config.checkpoint import Checkpoint
from outpace.config.experiment import Experiment
from outpace.engine.scripts.optimizers import require_followable
from outpace.record.checkpoints.trees import read_tree
from outpace.simulation.collective.routes import Formula, Messages, Route
from outpace.simulation.control import SimulationControl
from outpace.simulation.peer_checkpoints import PeerSaving
from outpace.simulation.scripts.collectives.simulated import SimulatedCollectives
from outpace.simulation.scripts.collectives.worker import FollowedWorker
from outpace.simulation.scripts.messages import Stepped
from outpace.simulation.scripts.runs import ScriptRun
from outpace.sync.checkpoint.state import ShardState
from outpace.sync.checkpoint.workers import common_state
from outpace.sync.messages import worker_name
from outpace.tasks import Workload


class FollowedSimulation(ScriptRun):
    """A run of a script with DistributedDataParallel and `sync.kind=ssgd`."""

    _saving: PeerSaving | None

    def _set_up(self, experiment: Experiment, workload: Workload) -> None:
        require_followable(experiment)
        self._steps = [0] * experiment.workers
        if self.resume is not None:
            self._steps = list(self.resume.first)
        self._set_up_saving()
        self._control = SimulationControl(self, [], [])
        self.workers = [
            FollowedWorker(self, process, self._steps[process.worker])
            for process in self.script_processes
        ]
        for worker in self.workers:
            self.kernel.spawn(worker.run(), worker_name(worker.number))

    # -- checkpoints --------------------------------------------------------------------

    def _new_saving(self, settings: Checkpoint) -> PeerSaving:
        return PeerSaving(self, self._workload, self._keeper, settings, None)

    def state(self, iterations: Mapping[int, int], parameters: Value) -> ShardState:
        """Return the state of the model that all workers have when they begin these iterations."""
        return common_state(iterations, iterations[0], self.totals.applied, parameters, {})

    def own_states(self, iterations: Mapping[int, int]) -> list[ShardState]:
        """Return nothing: what a worker has beside the model is in the file of its script."""
        return []

    def parameters_of(self, worker: int | None) -> Value:
        """Return the parameters that the script of a worker has written for the checkpoint."""
        path = self.script_processes[worker or 0].saved
        assert path is not None
        parameters: torch.Tensor = read_tree(path)["model"]
        return parameters

    def goes_on(self, worker: int) -> None:
        """A worker may begin its next iteration."""
        if self.experiment.checkpoint is None:
            return
        steps = self._steps[worker]
        if self._saving is not None:
            self._saving.look(worker, steps, steps)
        if steps != self.experiment.stop.iterations:  # its script waits for this
            self.script_processes[worker].go_on(steps)

    def left(self, worker: int) -> None:
        super().left(worker)
        if self._saving is not None:
            self._saving.leave(worker, None, self._steps[worker])

    # ---------------------------------------------------------------------------------

    def _collectives_of(self, experiment: Experiment) -> SimulatedCollectives:
        strategy, law = experiment.peers, experiment.network
        assert strategy is not None
        kind, count = strategy.all_reduce, experiment.workers
        is_fair = law is not None and law.contention == "fair" and law.all_reduce is None
        direct = Formula(self.kernel, self.network)
        route: Route = Messages(self.kernel, self.network) if is_fair else direct
        return SimulatedCollectives(self.kernel, route, count, self._ended, direct, kind)

    def parameters(self) -> list[Block]:
        found = self.script_processes[0].parameters
        return self._workload.initial_parameters() if found is None else [found]

    @property
    def updates(self) -> int:
        return min(self._steps)

    @property
    def _changes(self) -> tuple[int, ...]:
        return tuple(self._steps)

    def stepped(self, worker: int, step: Stepped) -> None:
        """Count a step of a worker's optimizer."""
        before = max(self._steps)
        self._steps[worker] += 1
        self.recorder.gradients_applied(1, [0])
        self.note_step(worker, step)
        if max(self._steps) > before:  # the first worker that has taken this step
            self._on_update(before + 1)
