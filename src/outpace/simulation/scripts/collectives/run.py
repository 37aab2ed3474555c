"""The exchange of scripts in virtual time whose own collectives and optimizers do the training."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from outpace.blocks.block import Block, Value
from outpace.record.checkpoints.trees import read_tree
from outpace.simulation.control import SimulationControl
from outpace.simulation.peer_checkpoints import PeerSaving
from outpace.simulation.scripts.body import ScriptBody
from outpace.simulation.scripts.collectives.worker import FollowedWorker
from outpace.simulation.scripts.messages import Stepped
from outpace.simulation.scripts.workload import ScriptWorkload
from outpace.simulation.virtual import Exchange, VirtualRun
from outpace.sync.checkpoint.state import ShardState
from outpace.sync.checkpoint.workers import common_state
from outpace.sync.messages import worker_name


class Followed(Exchange[PeerSaving]):
    """The exchange of a script with DistributedDataParallel and `sync.kind=ssgd`."""

    initial = None  # the scripts have the models

    def __init__(self, run: VirtualRun, workload: ScriptWorkload, body: ScriptBody) -> None:
        self._run, self._workload, self._body = run, workload, body
        self._steps = [0] * run.experiment.workers
        if run.resume is not None:
            self._steps = list(run.resume.first)
        self._saving: PeerSaving | None = None

    def start(self, saving: PeerSaving | None) -> None:
        run, self._saving = self._run, saving
        self.control = SimulationControl(run, [])
        for process in self._body.processes:
            first = self._steps[process.worker]
            worker = FollowedWorker(run, self, self._body, process, first)
            run.kernel.spawn(worker.run(), worker_name(process.worker))

    # -- checkpoints --------------------------------------------------------------------

    def state(self, iterations: Mapping[int, int], parameters: Value) -> ShardState:
        """Return the state of the model that all workers have when they begin these iterations."""
        return common_state(iterations, iterations[0], self._run.totals.applied, parameters, {})

    def own_states(self, iterations: Mapping[int, int]) -> list[ShardState]:
        """Return nothing: what a worker has beside the model is in the file of its script."""
        return []

    def parameters_of(self, worker: int | None) -> Value:
        """Return the parameters that the script of a worker has written for the checkpoint."""
        path = self._body.processes[worker or 0].saved
        assert path is not None
        parameters: torch.Tensor = read_tree(path)["model"]
        return parameters

    def goes_on(self, worker: int) -> None:
        """A worker may begin its next iteration."""
        experiment, steps = self._run.experiment, self._steps[worker]
        if experiment.checkpoint is None:
            return
        if self._saving is not None:
            self._saving.look(worker, steps, steps)
        if steps != experiment.stop.iterations:  # its script waits for this
            self._body.processes[worker].go_on(steps)

    def left(self, worker: int) -> None:
        """A script takes no more steps."""
        self._body.left(worker)
        if self._saving is not None:
            self._saving.leave(worker, None, self._steps[worker])

    # ---------------------------------------------------------------------------------

    def parameters(self) -> list[Block]:
        found = self._body.processes[0].parameters
        return self._workload.initial_parameters() if found is None else [found]

    @property
    def updates(self) -> int:
        return min(self._steps)

    @property
    def changes(self) -> tuple[int, ...]:
        return tuple(self._steps)

    def stepped(self, worker: int, step: Stepped) -> None:
        """Count a step of a worker's optimizer."""
        before = max(self._steps)
        self._steps[worker] += 1
        self._run.recorder.gradients_applied(1, [0])
        self._body.note_step(worker, step)
        if max(self._steps) > before:  # the first worker that has taken this step
            self._run.on_update(before + 1)
