"""A run in virtual time: driving, evaluating and ending it.

Its parts do the rest: a body (`computing`), an exchange, and a life (`life`).
"""

from __future__ import annotations

import contextlib
import gc
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pyarrow as pa
import torch

from outpace.blocks.block import Block
from outpace.cluster.laws import RunTime
from outpace.config.experiment import Experiment
from outpace.engine.control import ControlFunction
from outpace.engine.keeper import CheckpointKeeper
from outpace.engine.resuming import ResumePoint
from outpace.engine.status import StatusFile
from outpace.errors import ConfigError, DivergenceError, OutpaceError, RunError
from outpace.kernel import DeadlockError, Kernel, WalkerError
from outpace.predict.interface import Model
from outpace.record.event_log import EventLog
from outpace.record.metrics import Metrics
from outpace.record.recorder import Recorder
from outpace.record.status import EVERY_S
from outpace.record.totals import Totals
from outpace.record.trace import Trace, TraceRows
from outpace.simulation.checkpoints import Saving
from outpace.simulation.computing import Body
from outpace.simulation.life import Life
from outpace.simulation.network import network_of
from outpace.simulation.network.links import Log
from outpace.support import notices
from outpace.support.processes.signals import checkpoint_on_signal
from outpace.support.units import Time, nanoseconds, seconds
from outpace.tasks import Workload, require_accuracy

if TYPE_CHECKING:
    from outpace.simulation.control import SimulationControl

_END_OF_TIME: Time = 2**63 - 1  # 292 years; the trace keeps times in 64 bits
SavingT = TypeVar("SavingT", bound=Saving)
Progress = Callable[[float], None]  # completed share of the run, in [0, 1]


class Exchange(ABC, Generic[SavingT]):
    """Combines gradients or parameters in a run: the programs of its nodes, and the models.

    `servers` and `peers` have the exchanges of tasks and of scripts that attach;
    `scripts.collectives.run` has the exchange of scripts that use their own collectives.

    Attributes:
        control: changes policies during the run.
    """

    control: SimulationControl

    @abstractmethod
    def start(self, saving: SavingT | None) -> None:
        """Start all programs. saving: takes checkpoints; None: there are none."""

    @abstractmethod
    def parameters(self) -> list[Block]:
        """Return the present parameters as blocks, for an evaluation."""

    @property
    @abstractmethod
    def updates(self) -> int:
        """Number of updates so far, as `evaluate.every_updates` counts them."""

    @property
    @abstractmethod
    def changes(self) -> object:
        """Return a value that is different after each change of the parameters."""

    def pause(self, worker: int, *, over: bool = False) -> None:
        """Tell servers and scheduler that a worker begins or ends a wait in a collective."""

    def waiting(self) -> list[str]:
        """Describe which pulls are held where, for the message of a deadlock."""
        return []

    def run_time_model(self) -> Model | None:
        """See `Engine`."""
        return None

    def close(self) -> None:
        """Write everything that is still missing to the trace. Idempotent."""


@dataclass(slots=True)
class _Periodic:
    """An action at intervals of virtual time, such as an evaluation or a checkpoint."""

    act: Callable[[], None]
    period: Time
    due: Time


@contextlib.contextmanager
def _rare_garbage_collection() -> Iterator[None]:
    """Collect garbage rarely, as a run makes many short-lived objects and hardly any cycles."""
    thresholds = gc.get_threshold()
    gc.set_threshold(max(thresholds[0], 50_000), *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


class VirtualRun:
    """A run that can be driven once: a body, an exchange and a life. Implements `Engine`.

    `composition` makes runs.

    Args:
        rows: takes the rows of the recorder.
        progress: Called now and then with the completed share of the run.
        message_log: Called with each message that has arrived.
        tie_seed: Shuffles events of equal time, for tests.
        control: The user's function that changes policies during the run.
        resume: Where the run is resumed.
        keeper: Stores checkpoints; None: they are kept only in memory, if at all.
        status: Is written about once a second of real time; None: the run has no folder.
        warn: Takes warnings about the training.
        events: The log, which gets the events of the run.

    Attributes:
        body: computes the gradients.
        exchange: combines them.
        life: what happens to the processes.
        saving: takes checkpoints; None: there are none.

    Raises:
        ConfigError: if the experiment does not fit its task, or the checkpoint cannot be read.
    """

    body: Body
    exchange: Exchange[Any]
    life: Life
    saving: Saving | None

    def __init__(
        self,
        experiment: Experiment,
        workload: Workload,
        trace: Trace,
        rows: TraceRows,
        *,
        progress: Progress | None = None,
        message_log: Log | None = None,
        tie_seed: int | None = None,
        control: ControlFunction | None = None,
        resume: ResumePoint | None = None,
        keeper: CheckpointKeeper | None = None,
        status: StatusFile | None = None,
        warn: Callable[[str], None] = notices.warn,
        events: EventLog | None = None,
    ) -> None:
        self.kernel = Kernel(tie_seed=tie_seed)
        if resume is not None:
            self.kernel.set_time(resume.now)
        self.experiment, self.resume = experiment, resume
        self._workload, self._keeper = workload, keeper
        self._trace, self.rows = trace, rows
        self.events = events or EventLog(recovery=None if resume is None else resume.recovery)
        self.events.write_rows(trace, rows)
        self._progress, self._status, self.warn = progress, status, warn
        self._status_due_s = time.monotonic() + EVERY_S  # a shorter run writes none
        self._user_control = control
        require_accuracy(workload, experiment.accuracies)
        self.slices = experiment.slices(workload.layers)
        workload.cut(self.slices)
        self.layers = tuple(workload.layers)
        self.recorder = Recorder(rows)
        self.metrics = Metrics()
        self.network = network_of(
            experiment.network,
            self.kernel,
            message_log,
            machines=experiment.machines,
            seed=experiment.seed,
        )
        self._total = experiment.workers * (experiment.stop.iterations or 0)
        self._done = 0
        self._evaluated_at: object = None  # `changes` of the exchange at the last evaluation
        self.run_time = run_time_of(experiment)
        self._periodic: list[_Periodic] = []
        evaluated = self._take_up_from(resume) if resume is not None else 0
        if (period_s := experiment.evaluate.every_s) is not None:
            self._call_every(period_s, self._evaluate, evaluated)

    def _take_up_from(self, point: ResumePoint) -> Time:
        """Continue with the sums and metrics of a checkpoint; return the last evaluation's time.

        Raises ConfigError if the checkpoint cannot be read.
        """
        try:
            self.take_up(point.totals, point.metrics())
        except OSError as error:
            raise ConfigError(f"{point.path}: {error}") from error
        times = self.metrics.table()["time_s"]
        return nanoseconds(times[-1].as_py()) if len(times) else point.now

    def take_up(self, totals: Totals, metrics: pa.Table) -> None:
        """Continue with the sums and metrics of a checkpoint."""
        self.recorder.totals = totals
        self.network.messages, self.network.bytes_sent = totals.messages, totals.bytes_sent
        self._done = sum(totals.iterations.values())
        self.metrics.take_up(metrics)
        self._evaluated_at = None

    def compose(
        self,
        body: Body,
        exchange: Exchange[SavingT],
        life: Life,
        new_saving: Callable[..., SavingT] | None = None,
    ) -> None:
        """Set the parts of the run, and start its programs; called once.

        new_saving: makes the saver of checkpoints, if there are any, from the run, its exchange,
        its model, the keeper and the settings. None: the run cannot be saved.
        """
        self.body, self.exchange, self.life = body, exchange, life
        settings, saving = self.experiment.checkpoint, None
        is_kept = self._keeper is not None or life.keeps_in_memory
        if settings is not None and is_kept and new_saving is not None:
            saving = new_saving(self, exchange, self._workload, self._keeper, settings)
            if settings.every_s is not None:
                self._call_every(settings.every_s, saving.now, self.kernel.now)
        self.saving = saving
        exchange.start(saving)
        life.begin()
        if self._periodic:
            self.kernel.spawn(self._act_periodically(), "intervals", daemon=True)

    def _call_every(self, period_s: float, act: Callable[[], None], after: Time) -> None:
        """Call `act` at the first multiple of the period after `after` (ns), and at all later ones.

        If the run is resumed from a checkpoint, the first call is not before the present time.
        """
        period = nanoseconds(period_s)
        due = max((after // period + 1) * period, self.kernel.now)
        self._periodic.append(_Periodic(act, period, due))

    async def _act_periodically(self) -> None:
        """Make the periodic calls in one walker, because two would hide a deadlock."""
        kernel = self.kernel
        while True:
            due = min(each.due for each in self._periodic)
            await kernel.sleep_ns(due - kernel.now)
            if kernel.nothing_due:
                return  # there is a deadlock, which this walker must not hide
            for each in self._periodic:
                if each.due <= kernel.now:
                    each.act()
                    each.due = (kernel.now // each.period + 1) * each.period

    # -- the engine ----------------------------------------------------------------

    @property
    def places(self) -> int:
        return self.experiment.workers

    def times(self, host_s: float) -> dict[str, Any]:
        return {
            "virtual_time_s": seconds(self.kernel.now),
            "simulated_in_s": host_s,
            **self.body.summary(),
            **self.life.summary(),
        }

    def parameters(self) -> list[Block]:
        return self.exchange.parameters()

    @property
    def updates(self) -> int:
        """Number of updates so far, in the present parameters."""
        return self.exchange.updates

    def state_dict(self) -> dict[str, torch.Tensor]:
        return self.body.state_dict(self.parameters())

    def used_by_script(self) -> dict[str, Any] | None:
        return self.body.used_by_script()

    def files_written(self) -> Mapping[int, Collection[str]]:
        return self.body.files_written()

    def nodes(self) -> Mapping[str, str]:
        return {}

    def run_time_model(self) -> Model | None:
        return self.exchange.run_time_model()

    @property
    def totals(self) -> Totals:
        """Sums over the run so far."""
        totals = self.recorder.totals
        totals.messages = self.network.messages
        totals.bytes_sent = self.network.bytes_sent
        return totals

    def run(self) -> None:
        """Run to the end; `close` must be called afterwards, in any case.

        Raises:
            RunError: if the run fails; the message names the virtual time.
        """
        with checkpoint_on_signal(self._save_soon):
            self._drive()
        self.life.end()
        self.body.end()

    def _save_soon(self) -> None:
        if self.saving is None:
            notices.warn("SIGUSR1 is ignored: the run has no `checkpoint`, or no folder")
        else:
            self.saving.soon()

    def _drive(self) -> None:
        evaluate, stop = self.experiment.evaluate, self.experiment.stop
        until = _END_OF_TIME if stop.virtual_time_s is None else nanoseconds(stop.virtual_time_s)
        self.events.add("training", time_ns=self.kernel.now)
        self.body.start()
        if self._user_control is not None:
            self._user_control(self.exchange.control)
        if (evaluate.every_updates or evaluate.every_s) and not len(self.metrics):
            self._evaluate()
        if self.saving is not None:
            self.saving.begin()
        try:
            with _rare_garbage_collection():
                self.kernel.run(until)
        except WalkerError as error:
            if isinstance(error.error, OutpaceError):
                where = f"after {seconds(error.at):.6f} s of virtual time"
                raise type(error.error)(f"{error.error} ({where})") from error.error
            raise
        except DeadlockError as error:
            waiting = *self.exchange.waiting(), *self.body.waiting()
            raise RunError("\n".join([str(error), *waiting])) from error
        if self.kernel.now >= _END_OF_TIME:
            raise RunError("virtual time is over after 292 years and the run has not ended")
        if self.exchange.changes != self._evaluated_at:
            self._evaluate()

    def close(self) -> None:
        """Stop everything and write everything that is still missing to the trace. Idempotent."""
        self.exchange.close()
        self.kernel.close()
        self.body.close()
        self.life.close()
        self.rows.flush()
        self._trace.flush()

    def on_update(self, version: int) -> None:
        """Handle a new version of the parameters: evaluate it, if due; tell the checkpoints."""
        every = self.experiment.evaluate.every_updates
        if every and version % every == 0:
            self._evaluate()
        if self.saving is not None:
            self.saving.updated(version)

    def _evaluate(self) -> None:
        """Evaluate the current parameters, in zero virtual time."""
        self._evaluated_at = self.exchange.changes
        evaluation = self.body.evaluate(self.exchange.parameters)
        if evaluation is None:
            return
        self.metrics.add(self.kernel.now, self.updates, evaluation, self.totals)
        if self.experiment.stop.ends_at(evaluation.accuracy):
            self.kernel.stop()

    def finished_step(self) -> None:
        """Count a gradient whose virtual time has passed."""
        self._done += 1
        if self._done % 64:
            return
        if self._progress is not None:
            self._progress(self.share())
        if self._status is not None and (now_s := time.monotonic()) >= self._status_due_s:
            self._status_due_s = now_s + EVERY_S
            self._status.write("training", seconds(self.kernel.now), self.totals)

    def share(self) -> float:
        """Return the completed share of the run, in [0, 1]; 0 if it is unknown."""
        limit_s = self.experiment.stop.virtual_time_s
        by_time = seconds(self.kernel.now) / limit_s if limit_s is not None else 0.0
        by_steps = self._done / self._total if self._total else 0.0
        return min(1.0, max(by_time, by_steps))

    def computed(self, worker: int, iteration: int, loss: float | None) -> None:
        """Record the loss of a gradient that was computed because its value was read."""
        if loss is None:
            return
        if not math.isfinite(loss):
            raise DivergenceError(
                f"the loss of worker {worker} became {loss} in its iteration {iteration}, "
                f"after {self.updates} updates; try a smaller learning rate"
            )
        self.recorder.batch_loss(loss)


def run_time_of(experiment: Experiment) -> RunTime:
    """Return the law of run times of a run. Raises ConfigError if there is none, or it is wrong."""
    if experiment.compute is None:
        raise ConfigError(
            "compute is missing: virtual time needs to know how long a gradient takes; "
            "name a law of run times"
        )
    return experiment.compute.run_time(
        experiment.seed, experiment.workers, experiment.stop.iterations
    )
