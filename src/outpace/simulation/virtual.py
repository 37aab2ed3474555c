"""What all runs in virtual time have in common: they are driven, evaluated and brought to an end.

How the parameters are kept and exchanged is for others to say: `run` with servers, `peers`
without.
"""

from __future__ import annotations

import contextlib
import gc
import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from outpace.blocks.block import Block
from outpace.blocks.slicing import layers_within
from outpace.cluster.run_times import RunTime
from outpace.config.experiment import Experiment
from outpace.engine.control import Control, ControlFunction
from outpace.errors import ConfigError, DivergenceError, OutpaceError, RunError
from outpace.kernel import DeadlockError, Kernel, WalkerError
from outpace.predict.interface import Model
from outpace.record.metrics import Metrics
from outpace.record.recorder import Recorder, Totals
from outpace.record.trace import Trace
from outpace.simulation.executors import EvaluationJob, Gradients
from outpace.simulation.network import network_of
from outpace.simulation.network.links import Log
from outpace.support.generators import left_as_they_were
from outpace.support.threads import one_thread
from outpace.support.units import Time, nanoseconds, seconds
from outpace.tasks import CuttableWorkload, Evaluation, require_accuracy

_END_OF_TIME: Time = 2**63 - 1  # 292 years; the trace keeps times in 64 bits
Progress = Callable[[float], None]  # share of the run done, in [0, 1]


class VirtualRun(ABC):
    """A run that can be driven once. An `Engine`.

    Raises ConfigError where the experiment does not fit its task.
    """

    def __init__(
        self,
        experiment: Experiment,
        workload: CuttableWorkload,
        trace: Trace,
        *,
        progress: Progress | None = None,
        message_log: Log | None = None,
        tie_seed: int | None = None,
        control: ControlFunction | None = None,
    ) -> None:
        self.kernel = Kernel(tie_seed=tie_seed)
        self.experiment, self._workload, self._trace = experiment, workload, trace
        self._progress = progress or (lambda _: None)
        self._user_control = control
        require_accuracy(workload, experiment.accuracies)
        slices = experiment.slices(workload.layers)
        workload.cut(slices)
        self.layers = len(workload.layers)
        self._layers_of = [layers_within(part, workload.layers) for part in slices]
        self._optimizer = experiment.optimizer_in_run(workload.samples)
        self.recorder = Recorder(trace, self._on_update)
        self.metrics = Metrics()
        self.network = network_of(
            experiment.network,
            self.kernel,
            message_log,
            machines=experiment.machines,
            seed=experiment.seed,
        )
        self.gradients = Gradients(experiment, workload, self._computed, self._share)
        self._total = experiment.workers * (experiment.stop.iterations or 0)
        self._done = 0
        self._evaluated_at: Any = None  # what `_changes` was at the last evaluation
        self._pending: deque[tuple[int, EvaluationJob]] = deque()  # rows to be filled in
        self._control: Control
        self._set_up(experiment, workload)

    # -- what it consists of -----------------------------------------------------

    @abstractmethod
    def _set_up(self, experiment: Experiment, workload: CuttableWorkload) -> None:
        """Make what it consists of. The last thing that is done before it can be driven."""

    @abstractmethod
    def parameters(self) -> list[Block]:
        """The blocks as they are now: what is evaluated."""

    @property
    @abstractmethod
    def updates(self) -> int:
        """How often they were updated, as `evaluate.every_updates` counts."""

    @property
    @abstractmethod
    def _changes(self) -> Any:
        """Equal to what it was, unless they have changed since."""

    @abstractmethod
    def _waiting(self) -> list[str]:
        """Who is held where, for the words of a deadlock."""

    @abstractmethod
    def _abandon(self) -> None:
        """Report what was left undone to the trace."""

    # -- the engine ----------------------------------------------------------------

    def times(self, host_s: float) -> dict[str, Any]:
        return {
            "virtual_time_s": seconds(self.kernel.now),
            "simulated_in_s": host_s,
            "executor": self.gradients.describe(),
        }

    def state_dict(self) -> dict[str, torch.Tensor]:
        return self._workload.state_dict(self.parameters())

    def run_time_model(self) -> Model | None:
        return None

    @property
    def totals(self) -> Totals:
        """What happened so far, in sums."""
        totals = self.recorder.totals
        totals.messages = self.network.messages
        totals.bytes_sent = self.network.bytes_sent
        return totals

    def run(self) -> None:
        """Drive it to its end. Raises RunError if it fails, with the virtual time.

        `close` must be called afterwards, whatever happened.
        """
        try:
            self._drive()
        except RunError:
            with contextlib.suppress(RunError):
                self._settle(wait=True)  # what led to it
            raise
        self._settle(wait=True)

    def _drive(self) -> None:
        evaluate, stop = self.experiment.evaluate, self.experiment.stop
        until = _END_OF_TIME if stop.virtual_time_s is None else nanoseconds(stop.virtual_time_s)
        self.gradients.start()
        if self._user_control is not None:
            self._user_control(self._control)
        if evaluate.every_updates or evaluate.every_s:
            self._evaluate()
        try:
            with _rare_garbage_collection():
                self.kernel.run(until)
        except WalkerError as error:
            if isinstance(error.error, OutpaceError):
                where = f"after {seconds(error.at):.6f} s of virtual time"
                raise type(error.error)(f"{error.error} ({where})") from error.error
            raise
        except DeadlockError as error:
            raise RunError("\n".join([str(error), *self._waiting()])) from error
        if self.kernel.now >= _END_OF_TIME:
            raise RunError("the run came to the end of virtual time, 292 years, and to no other")
        if self._changes != self._evaluated_at:
            self._evaluate()

    def close(self) -> None:
        """Report what was left undone to the trace. Idempotent."""
        self.kernel.close()
        self._leave_out_pending()
        self.gradients.close()
        self._abandon()
        self._trace.flush()

    def _start_evaluations(self) -> None:
        """Those by the clock."""
        if self.experiment.evaluate.every_s is not None:
            self.kernel.spawn(self._evaluate_every(), "evaluation", daemon=True)

    async def _evaluate_every(self) -> None:
        period_s = self.experiment.evaluate.every_s
        assert period_s is not None
        while True:
            await self.kernel.sleep(period_s)
            if self.kernel.nothing_due:
                return  # a deadlock: this clock must not hide it
            self._evaluate()

    def _on_update(self, shard: int, version: int) -> None:
        every = self.experiment.evaluate.every_updates
        if every and shard == 0 and version % every == 0:
            self._evaluate()

    def _evaluate(self) -> None:
        """At zero virtual time."""
        self._evaluated_at = self._changes
        target = self.experiment.stop.target_accuracy
        evaluation = self.gradients.evaluate(
            self.parameters(),
            self.experiment.evaluate.samples,
            self.kernel.now,
            at_once=target is not None,
        )
        known = evaluation if isinstance(evaluation, Evaluation) else Evaluation()
        row = self.metrics.add(self.kernel.now, self.updates, known, self.totals)
        if isinstance(evaluation, EvaluationJob):
            self._pending.append((row, evaluation))
        elif target is not None and (evaluation.accuracy or 0.0) >= target:
            self.kernel.stop()
        self._settle(wait=False)

    def _settle(self, *, wait: bool) -> None:
        """Fill in evaluations that are there, or, waiting for them, all. Raises RunError."""
        while self._pending and (wait or self._pending[0][1].outcome is not None):
            row, job = self._pending.popleft()
            self.metrics.fill(row, job.value())

    def _leave_out_pending(self) -> None:
        """Of a run that ended early: leave out evaluations that are still under way."""
        while self._pending:
            row, job = self._pending.pop()
            if isinstance(job.outcome, Evaluation):
                self.metrics.fill(row, job.outcome)
            else:
                self.metrics.drop(row)

    def finished_step(self) -> None:
        """A worker has gone through the time that a gradient takes."""
        self._done += 1
        if self._done % 64 == 0:
            self._progress(self._share())

    def _share(self) -> float:
        """How much of the run is done, in [0, 1]; 0 if nobody knows."""
        limit_s = self.experiment.stop.virtual_time_s
        by_time = seconds(self.kernel.now) / limit_s if limit_s is not None else 0.0
        return max(by_time, self._done / self._total if self._total else 0.0)

    def _computed(self, worker: int, iteration: int, loss: float | None) -> None:
        """A gradient's value was read, and so computed."""
        if loss is None:
            return
        if not math.isfinite(loss):
            raise DivergenceError(
                f"the loss of worker {worker} became {loss} in its iteration {iteration}, "
                f"after {self.updates} updates; try a smaller learning rate"
            )
        self.recorder.batch_loss(loss)


class Computing:
    """The part of a worker's context that is about its gradients."""

    def __init__(self, run: VirtualRun, worker: int, run_time: RunTime) -> None:
        self.worker = worker
        self._run, self._run_time = run, run_time
        self._kernel, self._recorder = run.kernel, run.recorder
        limit = run.experiment.stop.iterations
        self._last = math.inf if limit is None else limit

    @property
    def now(self) -> Time:
        return self._kernel.now

    def must_stop(self, iteration: int) -> bool:
        return iteration >= self._last

    async def execute(self, parameters: Sequence[Block], iteration: int) -> Sequence[Block]:
        kernel = self._kernel
        duration_s = self._run_time(self.worker, iteration, kernel.now)
        due = kernel.now + nanoseconds(duration_s)
        gradient = self._run.gradients.submit(parameters, self.worker, iteration, due)
        await kernel.sleep(duration_s)
        self._has_computed()
        return gradient

    def _has_computed(self) -> None:
        self._recorder.gradient_computed(self.worker)
        self._run.finished_step()


def run_time_of(experiment: Experiment) -> RunTime:
    """How long workers compute. Raises ConfigError if nobody says."""
    if experiment.compute is None:
        raise ConfigError(
            "compute is missing: in virtual time somebody must say how long a step takes"
        )
    return experiment.compute.run_time(
        experiment.seed, experiment.workers, experiment.stop.iterations
    )


@contextlib.contextmanager
def _rare_garbage_collection() -> Iterator[None]:
    """A run makes many short-lived objects and hardly a cycle among them."""
    thresholds = gc.get_threshold()
    gc.set_threshold(max(thresholds[0], 50_000), *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


@contextlib.contextmanager
def one_thread_own_randomness() -> Iterator[None]:
    """What a simulation needs of this process, given back afterwards.

    One thread, because sums over several depend on their number; the user's random
    states and default dtype are left as they were.
    """
    with left_as_they_were(), one_thread():
        torch.set_default_dtype(torch.float32)
        yield
