"""Gives the places of lost workers to new processes.

`sync.membership` decides; here its orders become messages, and the answers its facts.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import msgspec

from outpace.config.experiment import Experiment
from outpace.engine.servers import leaves_behind
from outpace.engine.worker_losses import not_restarted
from outpace.errors import ConfigError, ProtocolError, RunError
from outpace.kernel import Kernel
from outpace.real.coordinator.observers import RunObserver
from outpace.real.coordinator.recovery.losses import Losses
from outpace.real.coordinator.recovery.processes import Processes, with_room
from outpace.real.coordinator.reports import Reports
from outpace.real.coordinator.saving.kept_scripts import KeptScripts
from outpace.real.net.messages import (
    Go,
    JoinRun,
    Plan,
    ProcessDone,
    Ready,
    ReplaceWorker,
    StopRun,
    WorkerReplaced,
)
from outpace.real.net.sparse_log import Log
from outpace.real.net.transport import Listener
from outpace.support.units import Time
from outpace.sync.membership import (
    EndRun,
    Kill,
    Membership,
    Order,
    Removed,
    Replace,
    Rules,
    Start,
)
from outpace.sync.messages import SCHEDULER, WireMessage, server_name, worker_name


class Replacements:
    """Brings lost workers back, or has the run go on without them.

    Args:
        start_s: for a new process to be ready.
        lost: called with a name if the run goes on without this worker.
        began: called with a worker whose new process begins with its work.
        observer: is told of each worker that begins again, or is removed.
        kept: what the scripts of new processes go on with.
        go: returns the order to start.
        ending: returns the order to stop, once it was given.
        forget: has this process forget the old process of a worker, which comes back (True) or
            not; returns the last iteration that the worker has pushed here, and those finished.
    """

    def __init__(
        self,
        experiment: Experiment,
        start_s: float,
        kernel: Kernel,
        listener: Listener,
        losses: Losses,
        reports: Reports,
        processes: Processes,
        lost: Callable[[str], None],
        began: Callable[[int], None],
        observer: RunObserver,
        log: Log,
        kept: KeptScripts,
        go: Callable[[], Go],
        ending: Callable[[], StopRun | None],
        forget: Callable[[int, bool], Coroutine[Any, Any, tuple[int, int]]],
    ) -> None:
        on_loss, workers = experiment.on_worker_loss, experiment.workers
        self._passes_over = leaves_behind(experiment)  # workers may pass over iterations
        self._wants_restart = on_loss == "restart"
        self._can_start = self._wants_restart and processes.start is not None
        rules = Rules(on_loss, can_start=self._can_start, start_s=start_s)
        self._servers = [server_name(server) for server in range(experiment.servers)]
        self._members = Membership(workers, self._servers, rules, [SCHEDULER])
        self._numbers = {worker_name(worker): worker for worker in range(workers)}
        self._kernel, self._listener, self._forget = kernel, listener, forget
        self._losses, self._reports, self._processes = losses, reports, processes
        self._lost, self._began, self._observer = lost, began, observer
        self._log, self._kept, self._go, self._ending = log, kept, go, ending
        self._watched: Time | None = None  # when the deadlines are looked at next
        self._errors: dict[int, RunError] = {}  # by worker: why it was lost the last time
        self._first = [0] * workers  # iterations with which new processes begin
        self._experiment = experiment
        self._losses.is_replaced = self._was_replaced
        self._losses.when_killed_at_its_end = self._killed_at_its_end
        self._reports.may_join_again = self._may_join

    @property
    def is_settled(self) -> bool:
        """True if no worker comes back, and all servers know of those that have left."""
        return self._members.is_settled

    @property
    def absent(self) -> list[str]:
        """Names of the workers without which the run goes on."""
        return [name for name, worker in self._numbers.items() if self._members.has_left(worker)]

    # -- losses ------------------------------------------------------------------------

    def take_losses(self, lost: Mapping[str, RunError]) -> bool:
        """Bring these processes back, or go on without them; False if that cannot be."""
        members, losses = self._members, self._losses
        if not lost.keys() <= self._numbers.keys():
            return False  # all begin again after the loss of a server
        for name in lost:
            # Who ends itself would do so again; who has left has the end of its script to do.
            exits = self._wants_restart and losses.has_exited(name)
            if exits or name in self._reports.left or not members.can_spare(self._numbers[name]):
                return False
        for name, error in lost.items():
            worker, how = self._numbers[name], str(error).removeprefix(f"{name} ")
            if self._ending() is not None:
                self._log(f"{error}; the run ends without it")
                members.given_up(worker)
                self._lost(name)
                continue
            has_ended = losses.has_ended(name)
            if self._can_start:
                self._errors[worker] = error
                losses.comes_back(name)
            else:
                why = "" if losses.has_exited(name) else not_restarted(self._experiment)
                self._log(f"{error}; the others go on without it{why}")
                self._lost(name)
            members.keeps(worker, self._kept.iteration(worker))
            self._do(members.lost(worker, how, self._kernel.now, has_ended=has_ended))
        self._watch_deadline()
        return True

    @property
    def coming_back(self) -> list[str]:
        """Names of lost workers whose places other processes take."""
        members = self._members
        return [name for name, worker in self._numbers.items() if members.is_coming_back(worker)]

    def goes_without(self, name: str) -> None:
        """Go on without a lost worker for whose next process there is no room.

        Raises:
            ConfigError: it is not coming back, or no other worker is left.
        """
        worker = self._numbers.get(name)
        if worker is None or not self._members.is_coming_back(worker):
            raise ConfigError(f"{name} is not coming back")
        was_restarted = self._members.is_starting(worker)
        try:
            orders = self._members.goes_without(worker)
        except ProtocolError as error:
            raise ConfigError(str(error)) from None
        if was_restarted:
            self._observer.not_restarted(worker)
        self._lost(name)
        self._losses.goes_without(name)
        self._processes.release(name)
        self._do(orders)
        self._watch_deadline()

    def _killed_at_its_end(self, name: str) -> None:
        """Tell the servers that a worker has left: its own message may not have reached them."""
        if name in self._numbers and self._ending() is None:
            worker, now = self._numbers[name], self._kernel.now
            self._do(self._members.lost(worker, "was killed at its end", now, has_ended=True))

    def _was_replaced(self, name: str) -> bool:
        """The process of this name has ended: return True if another one takes its place."""
        worker = self._numbers.get(name)
        if worker is None or not self._members.awaits_end(worker):
            return False  # it is the present process
        self._do(self._members.process_ended(worker, self._kernel.now))
        return True

    # -- messages ------------------------------------------------------------------------

    def take(self, name: str, message: WireMessage) -> bool:
        """Handle a message of a process; False if it is not about a process that comes back."""
        if isinstance(message, WorkerReplaced):
            self._take_confirmation(name, message)
            return True
        worker = self._numbers.get(name)
        if worker is None:
            return False
        if isinstance(message, ProcessDone):
            self._members.finished(worker)
        elif self._members.is_starting(worker) and isinstance(message, JoinRun):
            kept = self._kept.of(worker)
            self._listener.send(name, self._kept.announced(self._late_plan(), kept))
            self._kept.send(kept, {worker: self._members.done(worker)})
            return True
        elif self._members.is_starting(worker) and isinstance(message, Ready):
            self._members.began(worker)
            self._listener.send(name, self._go())
            self._began(worker)
            if (stop := self._ending()) is not None:
                self._listener.send(name, stop)
            return True
        return False

    def _late_plan(self) -> Plan:
        plan = self._reports.plan
        assert plan is not None
        return msgspec.structs.replace(plan, first=list(self._first), late=True)

    def _may_join(self, name: str) -> bool:
        worker = self._numbers.get(name)
        return worker is not None and self._members.is_starting(worker)

    def _take_confirmation(self, name: str, message: WorkerReplaced) -> None:
        try:
            if name not in self._servers:
                raise ProtocolError("only servers replace workers")
            self._confirm(name, message)
        except ProtocolError as error:
            self._listener.refuse(name, str(error))

    def _confirm(self, name: str, message: WorkerReplaced) -> None:
        now = self._kernel.now
        orders = self._members.confirmed(
            name, message.worker, message.generation, message.watermark, message.clock, now
        )
        self._do(orders)

    # -- orders ----------------------------------------------------------------------------

    def _do(self, orders: Sequence[Order]) -> None:
        for order in orders:
            match order:
                case Replace():
                    self._replace(order)
                case Kill(worker):
                    self._processes.kill(worker_name(worker))
                case Start():
                    self._start(order)
                case Removed(worker, lost):
                    if lost or worker_name(worker) not in self._losses.finished:
                        self._observer.recovered(order)
                case EndRun(reason):
                    why = self._processes.no_room(self.coming_back)
                    raise RunError(with_room(reason, why, is_saved=False))
        if orders:
            self._watch_deadline()

    def _watch_deadline(self) -> None:
        """Look at the deadlines when the next one passes. By then it may have become later."""
        due, watched = self._members.next_deadline, self._watched
        if due is not None and (watched is None or due < watched):
            self._watched = max(due, self._kernel.now)
            self._kernel.call_at(self._watched, self._look, self._watched)

    def _look(self, watched: Time) -> None:
        if watched != self._watched:
            return  # an earlier deadline was watched meanwhile
        self._watched = None
        self._do(self._members.on_time(self._kernel.now))
        self._watch_deadline()

    def _replace(self, order: Replace) -> None:
        message = ReplaceWorker(order.worker, order.generation, order.stays)
        if order.server != SCHEDULER:
            self._listener.send(order.server, message)
            return
        name = worker_name(order.worker)
        self._listener.replace(name, order.generation, returns=order.stays)
        self._kernel.spawn(self._forget_here(message), "a replacement", daemon=True)

    async def _forget_here(self, order: ReplaceWorker) -> None:
        """Have this process forget the old process."""
        watermark, clock = await self._forget(order.worker, order.stays)
        done = WorkerReplaced(order.worker, order.generation, watermark, clock)
        self._confirm(SCHEDULER, done)

    def _start(self, order: Start) -> None:
        name = worker_name(order.worker)
        self._first[order.worker] = order.first
        self._log(
            f"{self._errors[order.worker]}; it is restarted at iteration {order.first} "
            f"(generation {order.generation})"
        )
        completed = None if self._passes_over else order.first
        self._reports.begins_again(name, order.generation, order.worker, completed)
        self._observer.recovered(order)
        assert self._processes.start is not None
        self._processes.start(order.worker, order.generation)
