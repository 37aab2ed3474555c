"""Lets a run survive the loss of processes, and accept other processes.

`sync.membership` decides; this file turns its orders into messages, and messages into its events.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import msgspec

from outpace.config.experiment import Experiment
from outpace.engine.losses import add_restart, not_restarted
from outpace.engine.scripts.anew import REMEDY, begin_anew
from outpace.engine.scripts.sameness import SameGradients
from outpace.engine.servers import leaves_behind
from outpace.errors import ProtocolError, RunError
from outpace.kernel import Alarm
from outpace.real.coordinator.checkpoints import Checkpoints
from outpace.real.coordinator.run_state import ANSWER_S, RunState, with_room
from outpace.real.coordinator.script_states import ScriptStates
from outpace.real.coordinator.with_servers import WithServers
from outpace.real.coordinator.without_servers import WithoutServers
from outpace.real.net.messages import (
    JoinRun,
    ModelBuffers,
    Plan,
    Ready,
    ReplaceWorker,
    TrainingDone,
    WorkerReplaced,
)
from outpace.record.totals import Totals
from outpace.support.units import nanoseconds, seconds
from outpace.support.words import plural
from outpace.sync.membership.events import (
    BeginAgain,
    Confirmed,
    DeadlinePassed,
    EndRun,
    Event,
    Kill,
    Loss,
    NoPlaces,
    Order,
    PlacesFound,
    ProcessEnded,
    ProcessesLost,
    Removed,
    Replace,
    Reserve,
    Save,
    Scaled,
    Start,
    Unchanged,
    WorkerBegan,
)
from outpace.sync.messages import SCHEDULER, WireMessage, worker_name

StartWorker: TypeAlias = Callable[[int, int], None]

_LOOK_S: Final = 0.5  # seconds between two checks for places
_POLL_S: Final = 0.05  # seconds between two checks whether the cluster has answered
_NO_ANSWER: Final = (
    "the cluster does not say whether it has room: see with `ray status` whether it answers"
)


class AttemptOver(RunError):
    """Raised when all processes must begin again, or when losses end the run.

    Attributes:
        order: the order to begin again, or to end the run.
        then: orders to carry out when all have begun again.
    """

    def __init__(self, order: BeginAgain | EndRun, then: Sequence[Order] = ()) -> None:
        super().__init__(order.why if isinstance(order, BeginAgain) else order.reason)
        self.order, self.then = order, then


class Survival:
    """Tells the membership the events of a run, and carries out its orders.

    Args:
        architecture: makes this process forget the old process of a worker.
        checkpoints: the checkpoints of the run; None: none are taken.
        kept: the states with which the scripts of new processes continue.
        start_worker: starts a process of a generation for a worker.
    """

    def __init__(
        self,
        run: RunState,
        architecture: WithServers | WithoutServers,
        checkpoints: Checkpoints | None,
        first_gradients: SameGradients,
        kept: ScriptStates,
        start_worker: StartWorker,
    ) -> None:
        self._run, self._kernel, self._listener = run, run.kernel, run.listener
        self._launcher, self._architecture, self._kept = run.launcher, architecture, kept
        self._checkpoints, self._first_gradients = checkpoints, first_gradients
        self._start_worker, self._events = start_worker, run.setting.events
        self._alarm: Alarm | None = None  # alarm for the next deadline of a replacement
        self._losses: dict[str, Loss] = {}  # the last connections of workers that come back

    def tell(self, event: Event) -> None:
        """Carry out the orders that follow from an event.

        Raises:
            AttemptOver: if all processes must begin again, or if losses end the run.
            RunError: if the run ends.
            ProtocolError: if the event cannot happen now.
        """
        self.carry_out(self._run.members.take(event, self._kernel.now))

    # -- losses ------------------------------------------------------------------------

    def take_losses(self, losses: Sequence[Loss]) -> None:
        """Replace these processes, or continue without them.

        Args:
            losses: the losses, with the most directly known one first.
            note: see `ProcessesLost`.

        Raises:
            AttemptOver: if all processes must begin again.
            RunError: if the run ends.
        """
        run = self._run
        is_ending, without_servers = run.stop_reason is not None, not run.servers
        has_scripts = any(join.follows for join in run.joined.values())
        numbers, kept = run.numbers, self._kept
        losses = [
            replace(loss, kept=kept.iteration(numbers[loss.name])) if loss.name in numbers else loss
            for loss in losses
        ]
        is_over = is_ending and not (without_servers and has_scripts)
        orders = run.members.take(ProcessesLost(losses, is_over), self._kernel.now)
        if orders and isinstance(orders[0], BeginAgain | EndRun):
            self.carry_out(orders)
        for loss in losses:
            since = max(0, loss.since)
            self._events.add("lost", "warning", role=loss.name, why=str(loss), lost_ns=since)
            if run.table.role(loss.name).is_coming_back:
                self._losses[loss.name] = loss
                continue
            if is_ending or without_servers:
                run.log(f"{loss}; the run ends without it")
            else:
                why = "" if loss.has_exited else not_restarted(run.experiment)
                run.log(f"{loss}; the others continue without it{why}")
            self._continue_without(loss.name)
        self.carry_out(orders)

    def killed_at_its_end(self, name: str) -> None:
        """Tell the servers that a worker has left, as its own message may have been lost."""
        if name in self._run.numbers and self._run.stop() is None:
            self.tell(ProcessesLost([Loss(name, "was killed at its end")]))

    def is_replaced(self, name: str) -> bool:
        """Return True if another process takes the place of this process, which has ended."""
        worker = self._run.numbers.get(name)
        if worker is None or not self._run.table.workers[worker].awaits_end:
            return False  # the process is the present one
        self.tell(ProcessEnded(worker))
        return True

    # -- messages ------------------------------------------------------------------------

    def take(self, name: str, message: WireMessage) -> bool:
        """Handle a message of a process; False if it is not about a process that comes back."""
        if isinstance(message, WorkerReplaced):
            self._take_confirmation(name, message)
            return True
        if not self.may_join(name):
            return False
        worker = self._run.numbers[name]
        if isinstance(message, JoinRun):
            kept = self._kept.of(worker)
            self._listener.send(name, self._kept.announced(self._late_plan(), kept))
            if (buffers := self._run.buffers) is not None:
                self._listener.send(name, ModelBuffers(buffers))
            self._kept.send(kept, {worker: self._run.table.workers[worker].done})
            return True
        if isinstance(message, Ready):
            self.tell(WorkerBegan(worker))
            self._listener.send(name, self._run.go())
            if self._checkpoints is not None:
                self._checkpoints.began(name)
            self._events.add("began", role=name, time_ns=self._run.clock.now)
            if (stop := self._run.stop()) is not None:
                self._listener.send(name, stop)
            return True
        return False

    def _late_plan(self) -> Plan:
        plan = self._run.plan
        assert plan is not None
        first = [worker.first for worker in self._run.table.workers]
        return msgspec.structs.replace(plan, first=first, late=True)

    def may_join(self, name: str) -> bool:
        """True if a new process of this worker is expected, or not ready yet."""
        worker = self._run.numbers.get(name)
        return worker is not None and self._run.table.workers[worker].is_starting

    def _take_confirmation(self, name: str, message: WorkerReplaced) -> None:
        try:
            if name not in self._run.servers:
                raise ProtocolError("only servers replace workers")
            self._confirm(name, message)
        except ProtocolError as error:
            self._listener.refuse(name, str(error))

    def _confirm(self, name: str, message: WorkerReplaced) -> None:
        replaced = message.worker, message.generation
        self.tell(Confirmed(name, *replaced, message.watermark, message.clock))

    # -- orders ----------------------------------------------------------------------------

    def carry_out(self, orders: Sequence[Order]) -> None:
        """Carry out orders of the membership. Raises the errors of `tell`."""
        for number, order in enumerate(orders):
            match order:
                case Replace():
                    self._replace(order)
                case Kill(worker):
                    self._launcher.kill(worker_name(worker))
                case Start():
                    self._start(order)
                case Removed(worker):
                    name, now = worker_name(worker), self._run.clock.now
                    self._events.add("without", role=name, time_ns=now, updates_lost=order.lost)
                case EndRun(reason, lost) if not lost:
                    why = self._launcher.no_room(self._run.table.returning)
                    raise RunError(with_room(reason, why, is_saved=False))
                case BeginAgain() | EndRun():
                    raise AttemptOver(order, orders[number + 1 :])
                case Reserve(names):
                    self._kernel.spawn(self._find_places(names), "places", daemon=True)
                case Save():
                    assert self._checkpoints is not None
                    self._checkpoints.save_now()
                case Scaled():
                    self._scaled(order)
                case Unchanged(asker, why):
                    self.answer(asker, why, is_done=False)
        if self._alarm is not None:
            self._kernel.call_off(self._alarm)
        due, self._alarm = self._run.table.next_deadline, None
        if due is not None:
            self._alarm = self._kernel.set_alarm(max(due, self._kernel.now), self._look)

    def _look(self) -> None:
        self.tell(DeadlinePassed())

    def _replace(self, order: Replace) -> None:
        message = ReplaceWorker(order.worker, order.generation, order.stays)
        if order.server != SCHEDULER:
            self._listener.send(order.server, message)
            return
        name = worker_name(order.worker)
        self._listener.replace(name, order.generation)
        self._kernel.spawn(self._forget_here(message), "a replacement", daemon=True)

    async def _forget_here(self, order: ReplaceWorker) -> None:
        """Make this process forget the old process."""
        assert isinstance(self._architecture, WithServers)
        watermark, clock = await self._architecture.replace(order.worker, stays=order.stays)
        done = WorkerReplaced(order.worker, order.generation, watermark, clock)
        self._confirm(SCHEDULER, done)

    def _start(self, order: Start) -> None:
        name = worker_name(order.worker)
        self._run.log(
            f"{self._losses[name]}; it is restarted at iteration {order.first} "
            f"(generation {order.generation})"
        )
        self._keep_sums(name, order)
        add_restart(self._events, order)
        if self._checkpoints is not None and order.worker in self._checkpoints.unrepeatable:
            self._run.log(f"{begin_anew([order.worker], 'that the servers have')}: {REMEDY}")
        self._start_worker(order.worker, order.generation)

    def _keep_sums(self, name: str, order: Start) -> None:
        """Keep the sums of a process that is replaced.

        If the process was killed, it did not report its last iterations; if servers died, it has
        reported more iterations than the servers have.
        """
        totals_of, worker = self._run.totals_of, order.worker
        totals = totals_of.pop(name, None) or Totals()
        totals_of[f"{name} before generation {order.generation}"] = totals
        # It is not known which iterations a worker has completed if it skips some.
        if not leaves_behind(self._run.experiment):
            unreported = order.first - self._run.totals.iterations.get(worker, 0)
            totals.iterations[worker] = totals.iterations.get(worker, 0) + unreported

    def _continue_without(self, name: str) -> None:
        """Let the other processes continue without this worker."""
        if isinstance(self._architecture, WithoutServers):
            self._architecture.lose(name)
        self._launcher.kill(name)
        if self._checkpoints is not None:
            self._checkpoints.left(name, lost=True)
        self._first_gradients.has_left(name)
        self._run.announced.add(name, TrainingDone())

    # -- other numbers of processes ----------------------------------------------------------

    async def _find_places(self, names: Sequence[str]) -> None:
        """Look for places for these roles; give up after some time."""
        launcher, kernel = self._launcher, self._kernel
        until = kernel.now + nanoseconds(launcher.room_s)
        launcher.reserve(names)
        while why := await self._no_room(names):
            if kernel.now >= until:
                for name in names:
                    launcher.release(name)
                self.tell(NoPlaces(why))
                return
            await kernel.sleep(_LOOK_S)
        self.tell(PlacesFound())

    async def _no_room(self, names: Sequence[str]) -> str:
        """Return which of these roles have no place; see `Launcher.no_room`.

        A cluster that does not answer may have no place. The processes that train must not end
        because of it.
        """
        kernel, asked = self._kernel, self._launcher.no_room(names)
        until = kernel.now + nanoseconds(ANSWER_S)
        while not asked.done() and kernel.now < until:
            await kernel.sleep(_POLL_S)
        return asked.result() if asked.done() and asked.exception() is None else _NO_ANSWER

    def _scaled(self, order: Scaled) -> None:
        experiment = self._run.experiment
        has = with_numbers(order.before, experiment) or " with as many processes as before"
        took_s = seconds(time.monotonic_ns() - order.asked_at)
        self._events.add(
            "scaled",
            workers=experiment.workers,
            servers=experiment.servers_in_run,
            workers_before=order.before[0],
            servers_before=order.before[1],
            took_s=took_s,
        )
        self.answer(order.asker, f"the run continues{has}, after {took_s:.2f} s", is_done=True)

    def answer(self, asker: str, text: str, *, is_done: bool) -> None:
        """Answer a request for other numbers of processes."""
        self._run.log(text)
        self._run.setting.on_answer(asker, text, is_done)


def with_numbers(before: tuple[int, int], experiment: Experiment) -> str:
    """Return the present numbers of workers and servers, if changed, as the end of a line.

    before: the numbers of workers and of servers.
    """
    present = experiment.workers, experiment.servers_in_run
    found = [
        plural(now, kind)
        for kind, now, then in zip(("worker", "server"), present, before, strict=True)
        if now != then
    ]
    return f" with {' and '.join(found)}" if found else ""
