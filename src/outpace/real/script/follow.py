"""A worker's script that trains with its own collectives and optimizer (decision 11).

DistributedDataParallel all-reduces the gradients with `BackendCollectives`. An iteration ends with
each `optimizer.step()`. This worker reports to the coordinator when it computed and waited.
"""

from __future__ import annotations

import time
from typing import Final

import torch

from outpace.blocks.block import Value
from outpace.cluster.collectives import Costs
from outpace.cluster.paths import Paths
from outpace.config.experiment import Experiment
from outpace.engine.distributed.backward import BackwardTimes
from outpace.engine.distributed.call import Call
from outpace.engine.scripts.model import ScriptModel
from outpace.engine.scripts.requirements import require_followable
from outpace.engine.scripts.saved_script import SavedScript
from outpace.engine.scripts.worker import Presence
from outpace.optim import OptimizerState
from outpace.real.collective.script_collectives import BackendCollectives, Observer
from outpace.real.node.following import FollowingWorker
from outpace.real.node.member import CoordinatorLink
from outpace.real.node.worker_saver import WorkerSaver
from outpace.real.script.driver import OwnCollectives, WorkerDriver
from outpace.real.script.parameters import load_own
from outpace.real.script.saving import ScriptPart
from outpace.real.script.trainer import ScriptTrainer
from outpace.record.timing import ALL_REDUCE, COMPUTE
from outpace.support.place import HERE
from outpace.support.units import Time, seconds
from outpace.sync.checkpoint.state import ShardState

_END_S: Final = 5.0  # seconds to learn about the end that another worker knows


class RealFollowed(WorkerDriver, Observer):
    """The driver of such a script's worker. Implements `FollowedDriver`."""

    process: FollowingWorker

    def __init__(
        self,
        process: FollowingWorker,
        trainer: ScriptTrainer,
        experiment: Experiment,
        collectives: BackendCollectives,
        presence: Presence,
        part: ScriptPart,
    ) -> None:
        super().__init__(process, trainer, process.work(trainer), presence, part=part)
        self._own = OwnCollectives(self)
        strategy, law = experiment.peers, experiment.network
        assert strategy is not None
        self._route = strategy.all_reduce
        self._costs = Costs(Paths(law, experiment.machines) if law and law.stretch else None)
        self._workers = list(range(experiment.workers))
        self._started: Time = 0  # times of the iteration
        self._pass: BackwardTimes | None = None  # the last backward pass of this iteration
        self._passes = 0  # end of the run
        self._draw_s = 0.0
        # a worker knows that the run is over, so all stop after this iteration
        self._is_over = False
        collectives.observer = self

    # -- FollowedDriver ------------------------------------------------------------------------

    def start(self) -> None:
        self._drive()
        if self.part is not None:
            self.part.begin()
        self._begin_iteration()

    def forward(self) -> None:
        """Do nothing: iterations are counted by `stepped`."""

    def stepped(self) -> None:
        process, trainer = self.process, self._trainer
        iteration, known = trainer.iteration, self._pass
        if known is None and not self.presence.is_out:
            self._await_law()
        now = process.now
        computed = now if known is None else known.computed
        held = 0 if known is None else max(0, known.began - computed)
        process.recorder.gradient_computed(process.worker)
        process.recorder.gradients_applied(1, () if known is None else (0,))
        if process.is_recorded(iteration):
            process.span_of(COMPUTE, iteration, self._started, computed)
        process.iteration_finished(iteration, self._started, computed, now, held)
        trainer.iteration = iteration + 1
        process.version += 1
        self._handle_messages()  # an order may ask for a checkpoint at this step
        process.saver.look(iteration + 1, lambda: None)
        process.versions.reached(process.version)
        if self.part is not None:
            self.part.stepped()
        stopped = process.stopped
        is_early = stopped is not None and stopped.early
        if self._is_over or is_early or process.must_stop(iteration + 1):
            self._stop()
        self._begin_iteration()

    def _begin_iteration(self) -> None:
        self._pass, self._started = None, self.process.now
        self._draw_s = self.process.draw_s(self._trainer.iteration, self._started)

    def _stop(self) -> None:
        """End the training of this worker, and its script."""
        process = self.process
        until = process.now + int(_END_S * 1e9)
        while self._is_over and process.stopped is None and process.now < until:
            self._run_kernel(until)  # the message to this worker has not arrived yet
        self.presence.has_left = process.is_over = True
        self._hand_over()
        self._exit()

    # -- Observer ------------------------------------------------------------------------------

    @property
    def now(self) -> Time:
        return self.process.now

    def begins(self, call: Call) -> None:
        bucket = call.bucket
        if bucket is None or self.presence.is_out:
            return
        if bucket.index == 0:
            self._end_pass()
            self._pass = BackwardTimes(self._passes, self._workers, self.process.now)
            self._passes += 1
        self._trainer.first.add(self._trainer.iteration, call.inputs, completes=bucket.is_last)
        assert self._pass is not None
        self._pass.nbytes += sum(tensor.nbytes for tensor in call.inputs)
        if bucket.is_last:
            self._await_law()

    def _await_law(self) -> None:
        """Wait until the drawn time of the iteration is over."""
        rest_s = self._draw_s - self.process.worked_s(self._started)
        if rest_s > 0:
            time.sleep(rest_s)

    def _end_pass(self) -> None:
        """Count the wait after the previous backward pass, because the next pass begins."""
        if (known := self._pass) is not None:
            self.process.not_computing(known.computed, known.ended)
            self.process.recorder.totals.communicate += known.ended - known.computed

    def has_seen_end(self) -> bool:
        return self.process.stopped is not None

    def ends(self) -> None:
        self._is_over = True

    def exchanged(self, computed: int, joined: int, arrived: int) -> None:
        known, process = self._pass, self.process
        if known is None or self.presence.has_left:
            return
        origin = process.clock.origin
        least = self._costs.of(self._route, self._workers, known.nbytes).duration
        known.arrived(computed - origin, joined, arrived - origin, least)
        rest_s = seconds(known.ended - process.now)
        if rest_s > 0:
            time.sleep(rest_s)
        iteration, worker = self._trainer.iteration, process.worker
        process.recorder.averaged(worker, iteration, known, known.computed - known.joined)
        count = len(self._workers)
        process.recorder.totals.bytes_sent += 2 * (count - 1) * known.nbytes // count
        if process.is_recorded(iteration):
            span = known.computed, known.ended
            process.span_of(ALL_REDUCE, iteration, known.joined, known.ended, span, known.nbytes)

    def waited(self, call: Call, begun: int, ended: int) -> None:
        is_after = self._pass is not None and self._pass.ended > 0
        self._own.waited(call, begun, ended, in_computation=not is_after)

    def broken(self, call: Call) -> None:
        self._own.broken(call)


class FollowedModel:
    """The model of a script that trains it by itself. Implements `SavedModels`.

    All workers have the same parameters between two steps, and the same number of steps. So they
    are saved as with `ssgd`: after the same step, each with the state of its own optimizer, and
    with the state of its script at the next forward pass.
    """

    def __init__(self, script: ScriptModel) -> None:
        self._script = script

    def common_state(self) -> tuple[Value, OptimizerState, int]:
        return self._script.flat(), {}, 0

    def own_state(self, *, differs: bool) -> None:
        return None

    def restore(self, state: ShardState, own: ShardState | None) -> None:
        load_own(self._script, state, own)


def followed(
    link: CoordinatorLink,
    number: int,
    experiment: Experiment,
    collectives: BackendCollectives,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
) -> RealFollowed:
    """Return the driver of the worker of a script that has called `init_process_group`.

    Raises:
        ConfigError: if the configuration cannot be followed.
    """
    require_followable(experiment)
    script = ScriptModel(model, optimizer, is_exchanged=False)
    process = FollowingWorker(link, number, experiment, script, collectives.probe_group)
    trainer = ScriptTrainer(process, experiment, script)
    presence = Presence()
    # This is also needed without checkpoints, because the run may be resumed from an earlier one.
    kept = SavedScript(script, HERE.kept, experiment.checkpoint is not None, follows=True)
    part = ScriptPart(number, script, kept, presence.is_elsewhere, holds_state=False)
    process.saver = WorkerSaver(process, FollowedModel(script), experiment, part)
    return RealFollowed(process, trainer, experiment, collectives, presence, part)
