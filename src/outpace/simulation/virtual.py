"""The common part of all runs in virtual time: driving, evaluating and ending them.

Subclasses say how parameters are kept and exchanged: in `servers` and in `peers`.
"""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import torch

from outpace.blocks.block import Block
from outpace.blocks.slicing import layers_within
from outpace.cluster.laws import RunTime
from outpace.config.checkpoint import Checkpoint
from outpace.config.experiment import Experiment
from outpace.engine.control import ControlFunction
from outpace.engine.keeper import CheckpointKeeper
from outpace.engine.resuming import ResumePoint
from outpace.errors import ConfigError, DivergenceError, OutpaceError, RunError
from outpace.kernel import DeadlockError, Kernel, WalkerError
from outpace.predict.interface import Model
from outpace.record.curves import reaches
from outpace.record.event_log import EventLog
from outpace.record.metrics import Metrics
from outpace.record.recorder import Recorder
from outpace.record.recovery import Recovery
from outpace.record.totals import Totals
from outpace.record.trace import Trace
from outpace.simulation.checkpoints import Saving
from outpace.simulation.executors.gradients import Gradients
from outpace.simulation.executors.job import Job
from outpace.simulation.in_parts import Parts
from outpace.simulation.life import Life
from outpace.simulation.network import network_of
from outpace.simulation.network.links import Log
from outpace.simulation.periods import Periods
from outpace.simulation.status import StatusOfSimulation
from outpace.simulation.surroundings import rare_garbage_collection
from outpace.support import notices
from outpace.support.processes.signals import checkpoint_on_signal
from outpace.support.units import Time, nanoseconds, seconds
from outpace.tasks import Evaluation, Workload, require_accuracy

if TYPE_CHECKING:
    from outpace.simulation.control import SimulationControl
    from outpace.simulation.scripts.process import ScriptProcess

_END_OF_TIME: Time = 2**63 - 1  # 292 years; the trace keeps times in 64 bits
Progress = Callable[[float], None]  # share of the run done, in [0, 1]


class VirtualRun(ABC):
    """A run that can be driven once. Implements `Engine`.

    Args:
        progress: Called now and then with the share of the run that is done.
        message_log: Called with each message that has arrived.
        tie_seed: Shuffles events of equal time, for tests.
        control: The user's function that changes policies during the run.
        resume: Where the run goes on.
        keeper: Where checkpoints are kept; None: there are none.
        events: Is told of simulated failures.
        status: Is shown the run whenever `progress` is called.
        warn: Takes warnings about the training.

    Raises:
        ConfigError: if the experiment does not fit its task, or the checkpoint cannot be read.
    """

    def __init__(
        self,
        experiment: Experiment,
        workload: Workload,
        trace: Trace,
        *,
        progress: Progress | None = None,
        message_log: Log | None = None,
        tie_seed: int | None = None,
        control: ControlFunction | None = None,
        resume: ResumePoint | None = None,
        keeper: CheckpointKeeper | None = None,
        events: EventLog | None = None,
        status: StatusOfSimulation | None = None,
        warn: Callable[[str], None] = notices.warn,
    ) -> None:
        self.kernel = Kernel(tie_seed=tie_seed)
        if resume is not None:
            self.kernel.set_time(resume.now)
        self.resume, self._keeper = resume, keeper
        self.experiment, self._workload, self._trace = experiment, workload, trace
        self._progress, self._status, self.warn = progress, status, warn
        self._user_control = control
        require_accuracy(workload, experiment.accuracies)
        self.slices = experiment.slices(workload.layers)
        workload.cut(self.slices)
        self._layers_of = [layers_within(part, workload.layers) for part in self.slices]
        self._optimizer = experiment.optimizer_in_run(workload.samples)
        self.layers = tuple(workload.layers)
        self.life = self._new_life(trace, events or EventLog())
        self.recorder = Recorder(self.life.rows)
        self.metrics = Metrics()
        self.network = network_of(
            experiment.network,
            self.kernel,
            message_log,
            machines=experiment.machines,
            seed=experiment.seed,
        )
        self.gradients = self._gradients_of(experiment, workload)
        self._total = experiment.workers * (experiment.stop.iterations or 0)
        self._done = 0
        self._evaluated_at: Any = None  # `_changes` at the last evaluation
        self._pending: deque[tuple[int, Job]] = deque()  # rows of metrics to fill in
        self.run_time = _run_time_of(experiment)
        self._control: SimulationControl
        self._periods = Periods(self.kernel)
        self._saving: Saving | None = None  # takes checkpoints
        evaluated = self._take_up_from(resume) if resume is not None else 0
        if (period_s := experiment.evaluate.every_s) is not None:
            self._periods.add(self._evaluate, nanoseconds(period_s), evaluated)
        self._set_up(experiment, workload)
        self.life.begin()
        self._periods.spawn()

    def _take_up_from(self, point: ResumePoint) -> Time:
        """Go on with the sums and metrics of a checkpoint; return the last evaluation's time.

        Raises ConfigError if the checkpoint cannot be read.
        """
        try:
            self.take_up(point.totals, point.metrics())
        except OSError as error:
            raise ConfigError(f"{point.path}: {error}") from error
        times = self.metrics.table()["time_s"]
        return nanoseconds(times[-1].as_py()) if len(times) else point.now

    def take_up(self, totals: Totals, metrics: pa.Table) -> None:
        """Go on with the sums and metrics of a checkpoint."""
        self.recorder.totals = totals
        self.network.messages, self.network.bytes_sent = totals.messages, totals.bytes_sent
        self._done = sum(totals.iterations.values())
        self.metrics.take_up(metrics)
        self._evaluated_at = None

    # -- for subclasses ----------------------------------------------------------

    def _new_life(self, trace: Trace, events: EventLog) -> Life:
        """Return what happens to the processes. events: is told of it."""
        return Life(self, trace)

    def _gradients_of(self, experiment: Experiment, workload: Workload) -> Gradients:
        """Return what computes gradients and evaluations."""
        return Gradients(experiment, workload, self._computed, self._share)

    @abstractmethod
    def _set_up(self, experiment: Experiment, workload: Workload) -> None:
        """Create the nodes of the run and spawn their programs; set `_control`."""

    def _set_up_saving(self) -> None:
        """Make what takes checkpoints, if there are any; called in `_set_up` before programs."""
        settings = self.experiment.checkpoint
        if settings is None or (self._keeper is None and not self.life.keeps_in_memory):
            return
        self._saving = self._new_saving(settings)
        if settings.every_s is not None:
            self._periods.add(self._saving.now, nanoseconds(settings.every_s), self.kernel.now)

    @abstractmethod
    def _new_saving(self, settings: Checkpoint) -> Saving:
        """Return what takes checkpoints."""

    @property
    def script_processes(self) -> Sequence[ScriptProcess]:
        """The processes of the scripts, by worker; empty: the run is of a task."""
        return ()

    @cached_property
    def parts(self) -> Parts:
        """When the part of each server is complete, with `overlap`."""
        return Parts(self.slices, self.experiment.forward_share)

    @abstractmethod
    def parameters(self) -> list[Block]:
        """Return the current blocks, which are what is evaluated."""

    @property
    @abstractmethod
    def updates(self) -> int:
        """Number of updates so far, as `evaluate.every_updates` counts them."""

    @property
    @abstractmethod
    def _changes(self) -> Any:
        """Return a value that changes whenever the parameters do."""

    def _waiting(self) -> list[str]:
        """Describe which pulls are held where, for the message of a deadlock."""
        return []

    # -- the engine ----------------------------------------------------------------

    @property
    def places(self) -> int:
        return self.experiment.workers

    def times(self, host_s: float) -> dict[str, Any]:
        return {
            "virtual_time_s": seconds(self.kernel.now),
            "simulated_in_s": host_s,
            "executor": self.gradients.describe(),
            **self.life.summary(),
        }

    def state_dict(self) -> dict[str, torch.Tensor]:
        return self._workload.state_dict(self.parameters())

    def used_by_script(self) -> dict[str, Any] | None:
        return None

    def recovery(self) -> Recovery:
        return self.life.recovery()

    def nodes(self) -> Mapping[str, str]:
        return {}

    def run_time_model(self) -> Model | None:
        return None

    @property
    def totals(self) -> Totals:
        """Sums over the run so far."""
        totals = self.recorder.totals
        totals.messages = self.network.messages
        totals.bytes_sent = self.network.bytes_sent
        return totals

    def run(self) -> None:
        """Run to the end; `close` must be called afterwards, whatever happened.

        Raises:
            RunError: if the run fails; the message names the virtual time.
        """
        with checkpoint_on_signal(self._save_soon):
            try:
                self._drive()
            except RunError:
                with contextlib.suppress(RunError):
                    self.settle(wait=True)  # evaluations before the error
                raise
            self.settle(wait=True)
        self.life.end()

    def _save_soon(self) -> None:
        if self._saving is None:
            notices.warn("SIGUSR1 is ignored: the run has no `checkpoint`, or no folder")
        else:
            self._saving.soon()

    def _drive(self) -> None:
        evaluate, stop = self.experiment.evaluate, self.experiment.stop
        until = _END_OF_TIME if stop.virtual_time_s is None else nanoseconds(stop.virtual_time_s)
        self.gradients.start()
        if self._user_control is not None:
            self._user_control(self._control)
        if (evaluate.every_updates or evaluate.every_s) and not len(self.metrics):
            self._evaluate()
        if self._saving is not None:
            self._saving.begin()
        try:
            with rare_garbage_collection():
                self.kernel.run(until)
        except WalkerError as error:
            if isinstance(error.error, OutpaceError):
                where = f"after {seconds(error.at):.6f} s of virtual time"
                raise type(error.error)(f"{error.error} ({where})") from error.error
            raise
        except DeadlockError as error:
            raise RunError("\n".join([str(error), *self._waiting()])) from error
        if self.kernel.now >= _END_OF_TIME:
            raise RunError("virtual time is over after 292 years and the run has not ended")
        if self._changes != self._evaluated_at:
            self._evaluate()

    def close(self) -> None:
        """Stop everything and write what was left undone to the trace. Idempotent."""
        if self._saving is not None:
            self._saving.close()
        self.kernel.close()
        self._drop_pending()
        self.gradients.close()
        self.life.close()
        self._trace.flush()

    def _on_update(self, version: int) -> None:
        """The parameters have a new version: evaluate it, if it is to be; tell the checkpoints."""
        every = self.experiment.evaluate.every_updates
        if every and version % every == 0:
            self._evaluate()
        if self._saving is not None:
            self._saving.updated(version)

    def _evaluate(self) -> None:
        """Evaluate the current parameters, in zero virtual time."""
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
        if isinstance(evaluation, Job):
            self._pending.append((row, evaluation))
        elif reaches(evaluation.accuracy, None, target):
            self.kernel.stop()
        self.settle(wait=False)

    def files_written(self) -> Mapping[int, Collection[str]]:
        """See `Engine`."""
        return {}

    def settle(self, *, wait: bool) -> None:
        """Fill in finished evaluations; with `wait`, all of them. Raises RunError."""
        while self._pending and (wait or self._pending[0][1].outcome is not None):
            row, job = self._pending.popleft()
            self.metrics.fill(row, job.evaluation())

    def _drop_pending(self) -> None:
        """Drop the rows of evaluations that are still under way when a run ends early."""
        while self._pending:
            row, job = self._pending.pop()
            if isinstance(job.outcome, Evaluation):
                self.metrics.fill(row, job.outcome)
            else:
                self.metrics.drop(row)

    def finished_step(self) -> None:
        """Count a gradient whose virtual time has passed."""
        self._done += 1
        if self._done % 64:
            return
        if self._progress is not None:
            self._progress(self._share())
        if self._status is not None:
            self._status.look(self)

    def _share(self) -> float:
        """Return the share of the run that is done, in [0, 1]; 0 if that is unknown."""
        limit_s = self.experiment.stop.virtual_time_s
        by_time = seconds(self.kernel.now) / limit_s if limit_s is not None else 0.0
        by_steps = self._done / self._total if self._total else 0.0
        return min(1.0, max(by_time, by_steps))

    def _computed(self, worker: int, iteration: int, loss: float | None) -> None:
        """Record the loss of a gradient that was computed because its value was read."""
        if loss is None:
            return
        if not math.isfinite(loss):
            raise DivergenceError(
                f"the loss of worker {worker} became {loss} in its iteration {iteration}, "
                f"after {self.updates} updates; try a smaller learning rate"
            )
        self.recorder.batch_loss(loss)


def _run_time_of(experiment: Experiment) -> RunTime:
    if experiment.compute is None:
        raise ConfigError(
            "compute is missing: virtual time needs to know how long a gradient takes; "
            "name a law of run times"
        )
    return experiment.compute.run_time(
        experiment.seed, experiment.workers, experiment.stop.iterations
    )
