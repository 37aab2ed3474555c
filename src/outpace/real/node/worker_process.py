"""The base class of worker processes, and the interface of the model that they train.

`ServedWorker` and `PeerWorker` add the context of the programs with and without servers. A
`Trainer` computes gradients of the task of a configuration, or of the model of a user's script.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from threading import get_ident
from typing import Any, Final, Protocol, TypeAlias

import torch

from outpace.blocks.block import Block, StepSettings, whole_tensor
from outpace.config.experiment import Experiment
from outpace.engine.scripts.gradient import not_finite
from outpace.engine.scripts.redividing import Redivided
from outpace.kernel import Mailbox
from outpace.optim.torch_optimizers import State
from outpace.real.net.messages import Initialize, ModelBuffers, Plan, Snapshot
from outpace.real.net.report_messages import MOST_POINTS, LoggedPoint, ScriptLog
from outpace.real.net.sparse_log import SparseLog
from outpace.real.node.member import CoordinatorLink, Member
from outpace.real.node.timing import Recorded
from outpace.real.node.worker_saver import WorkerSaver
from outpace.record.tables import NONE
from outpace.record.timing import COMPUTE, PROBE, STOPPED, UNTIMED, Sampling
from outpace.support.units import Time, seconds
from outpace.sync.checkpoint.workers import Restored
from outpace.sync.messages import WireMessage
from outpace.sync.programs.context import SendPart, Stopped

MustEnd: TypeAlias = Callable[[], bool]  # asked at the abort points of a computation

_CHECK_EVERY_NS: Final = 1_000_000


class Trainer(Protocol):
    """The task, or the script's model, that a worker trains.

    The methods implemented here are for a task, which has no model buffers and no optimizer.
    """

    layers: list[int]  # number of elements of each trainable parameter
    used: str = ""  # kind and settings of a script's optimizer, as JSON
    layout: str  # names, shapes and dtypes of the parameters: equal in all workers
    stops: bool = True  # if the last computation could be stopped by `must_end`
    step_settings: StepSettings | None = None  # for the next push; None if they never change

    def read_buffers(self, *, unsaved: bool = False) -> torch.Tensor:
        """Return the model buffers as bytes; shape (bytes,), uint8.

        Args:
            unsaved: True: also the buffers that are not saved with the model.
        """
        return torch.empty(0, dtype=torch.uint8)

    def load_buffers(self, data: torch.Tensor) -> None:
        """Replace the model buffers, if there are any, by the buffers of worker 0."""

    async def gradient(
        self, parameters: Sequence[Block], iteration: int, must_end: MustEnd | None = None
    ) -> Sequence[Block | None] | Stopped:
        """Compute the gradient; each block is None if the gradient is refused.

        Args:
            must_end: called at each abort point; once it returns True, the computation stops.
        """

    # With servers.

    async def gradient_in_parts(
        self, parameters: Sequence[Block], iteration: int, send: SendPart
    ) -> Sequence[Block | None]:
        """Compute the gradient; call `send` with the parts that are complete before its end.

        Returns the other parts, by server; entries of parts that were sent have no meaning.
        """

    def cut(self, slices: Sequence[slice]) -> list[Block]:
        """Exchange one block per slice from now on; return the initial blocks."""

    def initialize(self, server: int, block: Block) -> Initialize:
        """Return the message with which worker 0 initializes a server."""
        return Initialize("", [], [], block)

    def lengths(self, server: int) -> dict[int, int]:
        """Return the number of elements of each tensor of a script in a server's part."""
        return {}

    def initial_state(self) -> Sequence[Mapping[int, State]]:
        """Return the state with which each server's optimizer begins; empty if there is none."""
        return []


def others_of(plan: Plan) -> Redivided | None:
    """Return how scripts continue with a new number of workers; None if it is the same."""
    return Redivided(plan.before, plan.places) if plan.before else None


class WorkerProcess(Member, ABC):
    """The process of worker number `worker`."""

    def __init__(self, link: CoordinatorLink, worker: int, experiment: Experiment) -> None:
        super().__init__(link)
        sampling = Sampling.of_run(experiment.workers, experiment.servers_in_run)
        self.is_recorded = Recorded(sampling)  # decides which iterations are recorded
        self.worker = worker
        self._log = SparseLog(self.notice)
        self.is_over = False  # True: its script has left the training
        self._limit = experiment.stop.iterations
        self._stops_at_non_finite = experiment.non_finite == "stop"
        # Spans, in order and apart, in which this worker computes no gradient.
        self._untimed: list[tuple[Time, Time]] = []
        # points that the script has logged since the last message
        self._points = deque[LoggedPoint]()
        self._thread = get_ident()  # only this thread may send
        law = experiment.compute
        self._run_time = law and law.run_time(
            experiment.seed, experiment.workers, experiment.stop.iterations
        )
        self._buffers = Mailbox[torch.Tensor](self.kernel, "worker-0's model buffers")
        # The data that a script passes to the program, which waits while the script computes.
        self.from_script = Mailbox[Sequence[Block | None]](self.kernel, "the script's gradient")
        self.trainer: Trainer

    # -- before the run begins -------------------------------------------------------

    async def join_run(self, **what: Any) -> Plan:
        """Describe this worker's model to the coordinator; return the coordinator's plan."""
        trainer = self.trainer
        self.join(
            layout=trainer.layout,
            layers=trainer.layers,
            buffer_bytes=trainer.read_buffers(unsaved=True).numel(),
            used=trainer.used,
            **what,
        )
        return await self.order(Plan)

    def restored(self, plan: Plan, saver: WorkerSaver, first: int) -> Restored:
        """Restore a checkpoint if the run continues from one; without servers.

        first: the first iteration of this worker. Raises RunError.
        """
        if not plan.resume:
            return saver.restore(first, None)
        return self.read_checkpoint(
            Path(plan.resume), lambda found: saver.restore(first, found, others_of(plan))
        )

    async def agree_on_buffers(self, *, gives: bool) -> None:
        """Load the model buffers of worker 0.

        Args:
            gives: True: send this worker's buffers.
        """
        buffers = self.trainer.read_buffers(unsaved=True)
        if gives:
            self.send_buffers(buffers)
        elif buffers.numel():
            self.trainer.load_buffers(await self._buffers.get())

    def send_buffers(self, buffers: torch.Tensor) -> None:
        """Send the model buffers, if there are any, to the coordinator."""
        if buffers.numel():
            self.coordinator.send(ModelBuffers(buffers))

    # -- time --------------------------------------------------------------------------

    @property
    def now(self) -> Time:
        # the present time from the clock, without a call
        return time.monotonic_ns() - self.clock.origin

    def must_stop(self, iteration: int) -> bool:
        return self.is_over or (self._limit is not None and iteration >= self._limit)

    def draw_s(self, iteration: int, started: Time) -> float:
        """Return the minimum seconds of an iteration, according to the configuration's law."""
        return self._run_time(self.worker, iteration, started) if self._run_time else 0.0

    def worked_s(self, started: Time) -> float:
        """Return the seconds since `started`, without spans that the script marked as untimed."""
        now = self.now
        return seconds(now - started - self._untimed_within(started, now))

    def _untimed_within(self, low: Time, high: Time) -> Time:
        """Return how much of the time from `low` to `high` is untimed (ns)."""
        if not self._untimed:
            return 0
        return sum(max(0, min(end, high) - max(begin, low)) for begin, end in self._untimed)

    def iteration_finished(
        self,
        iteration: int,
        started: Time,
        computed: Time,
        finished: Time,
        held: Time,
        last_server: int = NONE,
    ) -> None:
        """Record an iteration; it begins later by the untimed spans in its computation."""
        started += self._untimed_within(started, computed)
        if self._untimed and self._untimed[0][1] < started:
            self._untimed = [span for span in self._untimed if span[1] >= started]
        self.recorder.iteration_finished(
            self.worker, iteration, started, computed, finished, held, last_server
        )

    async def execute(
        self, parameters: Sequence[Block], iteration: int, must_end: MustEnd | None = None
    ) -> Sequence[Block | None]:
        """Compute the gradient; return it once the drawn time of the iteration has passed.

        Args:
            must_end: called at abort points; must return False.
        """
        started = self.now
        duration_s = self.draw_s(iteration, started)
        gradient = await self.trainer.gradient(parameters, iteration, must_end)
        assert not isinstance(gradient, Stopped), "nothing ends this computation"
        if not self.must_stop(iteration):  # the script has not ended in the meantime
            # In short iterations, messages are handled while the worker waits for its answers.
            if duration_s or self.now - self.kernel.now > _CHECK_EVERY_NS:
                self.kernel.catch_up()
            if duration_s and (rest_s := duration_s - self.worked_s(started)) > 0:
                await self.kernel.sleep(rest_s)
            self.computed(iteration, started)
        return gradient

    def computed(self, iteration: int, started: Time) -> None:
        """Count a gradient that has just been computed, and note its time."""
        self.recorder.gradient_computed(self.worker)
        if self.is_recorded(iteration):
            self.span_of(COMPUTE, iteration, started, self.now)

    def not_computing(self, begun: Time, ended: Time) -> None:
        """Subtract a span in which the script waited for others from a gradient's time."""
        self._untimed.append((begun, ended))

    def span_of(
        self,
        what: int,
        iteration: int,
        began: Time,
        ended: Time,
        inner: tuple[Time, Time] = (NONE, NONE),
        sent_bytes: int = 0,
    ) -> None:
        """Add a span of this worker to the times; see `record.timing`."""
        if what in (COMPUTE, STOPPED):
            began += self._untimed_within(began, ended)
        self.timing.span(what, self.worker, iteration, began, ended, inner, sent_bytes)

    def refuse_gradient(self, what: str, iteration: int) -> None:
        """Report a gradient that is not finite and so is not pushed.

        Raises:
            DivergenceError: if the run ends because of it.
        """
        if self._stops_at_non_finite:
            raise not_finite(what, self.name, iteration)
        self.recorder.gradient_unusable()
        self._log.note(
            f"a {what} of {self.name} is not finite: it is not pushed",
            first=f" (iteration {iteration})",
        )

    def rate_limited(self, check: MustEnd) -> MustEnd:
        """Return a function that handles messages and calls `check`, at most once per ms."""
        checked_ns = 0

        def limited() -> bool:
            nonlocal checked_ns
            now = time.monotonic_ns()
            if now - checked_ns < _CHECK_EVERY_NS:
                return False
            checked_ns = now
            self.kernel.catch_up()
            return check()

        return limited

    def note_probes(self, found: Iterable[tuple[int, Time, Time]]) -> None:
        """Add all-reduces of the first measurement to the times; see `timed_all_reduces`."""
        for number, (size, joined, arrived) in enumerate(found):
            self.span_of(PROBE, number, joined, arrived, (joined, arrived), size)

    # -- what a script tells ---------------------------------------------------------------

    def log(self, iteration: int, values: Mapping[str, float]) -> None:
        """Log a point; the next report to the coordinator contains it. From any thread."""
        self._points.append(LoggedPoint(max(0, self.now), iteration, dict(values)))
        if len(self._points) >= MOST_POINTS and get_ident() == self._thread:
            self._send_points()

    def untimed(self, iteration: int, begun: Time, ended: Time) -> None:
        """Subtract a span from the time in which this worker computes gradients."""
        self._untimed.append((begun, ended))
        self.recorder.untimed(self.worker, iteration, begun, ended)
        self.timing.span(UNTIMED, self.worker, iteration, begun, ended)

    def flush(self) -> None:
        self._send_points()
        super().flush()

    def _send_points(self) -> None:
        while self._points:
            count = min(len(self._points), MOST_POINTS)
            self.coordinator.send(ScriptLog([self._points.popleft() for _ in range(count)]))

    # -- the end -------------------------------------------------------------------------

    @abstractmethod
    async def leave(self, *, fetch: bool) -> list[Block]:
        """Leave the run when the script has ended.

        Args:
            fetch: return the final parameters, once all workers have left.

        Returns:
            Parameters to load into the script's model; empty to keep its present parameters.
        """

    def send_result(self) -> None:
        """Send this worker's part of the run's result."""

    def send_snapshot(self, block: Block, version: int, request: int, applied: int) -> None:
        """Send parameters to the coordinator. For the arguments see `Snapshot`."""
        now = max(0, self.now)
        self.coordinator.send(Snapshot(self.worker, version, request, now, applied, block))

    # -- incoming messages ---------------------------------------------------------------

    def _expected(self, peer: str, message: WireMessage) -> tuple[str, int] | None:
        if isinstance(message, ModelBuffers):
            return "uint8", self.trainer.read_buffers(unsaved=True).numel()
        return super()._expected(peer, message)

    def _order(self, peer: str, message: WireMessage) -> None:
        if isinstance(message, ModelBuffers):
            self._buffers.put(whole_tensor(message.block))
        else:
            super()._order(peer, message)
