"""Gives the places of lost workers to new processes.

`sync.membership` decides; here its orders become messages, and the answers its facts.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import msgspec

from outpace.engine.worker_losses import not_restarted
from outpace.errors import ConfigError, ProtocolError, RunError
from outpace.real.coordinator.joining_scripts import JoiningScripts
from outpace.real.coordinator.recovery.processes import with_room
from outpace.real.coordinator.recovery.run_around import RunAround
from outpace.real.coordinator.saving.of_servers import CheckpointsOfServers
from outpace.real.coordinator.scaled_workers import ScaledWorkers
from outpace.real.net.membership_messages import ReplaceWorker, WorkerReplaced
from outpace.real.net.messages import JoinRun, Plan, ProcessDone, Ready
from outpace.real.net.moving_messages import Divide
from outpace.support.units import Time
from outpace.sync.membership import (
    EndRun,
    Kill,
    Membership,
    NotJoined,
    Order,
    Removed,
    Replace,
    Rules,
    Start,
)
from outpace.sync.messages import SCHEDULER, WireMessage, worker_name


class Replacements:
    """Brings lost workers back, or has the run go on without them.

    Args:
        servers: names of those that take gradients of the workers; the last may be `SCHEDULER`,
            this process.
        schedulers: names of others that hear the workers.
        forget: has this process forget the old process of a worker, which comes back (True) or
            not; returns the last iteration that the worker has pushed here, and those finished.
        passes_over: workers may pass over iterations.
    """

    def __init__(
        self,
        run: RunAround,
        servers: Sequence[str],
        schedulers: Sequence[str],
        forget: Callable[[int, bool], Coroutine[Any, Any, tuple[int, int]]],
        *,
        passes_over: bool,
    ) -> None:
        on_loss, workers = run.experiment.on_worker_loss, run.experiment.workers
        self._passes_over = passes_over
        self._wants_restart = on_loss == "restart"
        self._can_start = self._wants_restart and run.processes.start is not None
        rules = Rules(on_loss, can_start=self._can_start, start_s=run.start_s)
        self._members = Membership(workers, servers, rules, schedulers)
        self._numbers = {worker_name(worker): worker for worker in range(workers)}
        self._servers = servers
        self._divided: Divide | None = None  # once servers have joined or left
        self._kernel, self._listener, self._forget = run.kernel, run.listener, forget
        self._losses, self._reports, self._processes = run.losses, run.reports, run.processes
        self._lost, self._began, self._observer = run.lost, run.began, run.observer
        self._log, self._kept, self._go, self._ending = run.log, run.kept, run.go, run.ending
        self._run = run
        self._watched: Time | None = None  # when the deadlines are looked at next
        self._errors: dict[int, RunError] = {}  # by worker: why it was lost the last time
        self._first = [0] * workers  # iterations with which new processes begin
        self._uncounted = [0] * workers  # iterations before those that it did not do itself
        self.scaling: ScaledWorkers | None = None  # has workers join and leave
        self._data = [(0, workers)]  # as in `Plan`
        self._losses.is_replaced = self._was_replaced
        self._losses.when_killed_at_its_end = self._killed_at_its_end
        self._reports.may_join_again = self._may_join

    @property
    def is_recovering(self) -> bool:
        """True while a lost worker comes back."""
        return any(map(self._members.is_coming_back, self._numbers.values()))

    @property
    def is_settled(self) -> bool:
        """True if no worker joins or comes back, and all servers know of those that have left."""
        return self._members.is_settled

    @property
    def generations(self) -> Mapping[int, int]:
        """The generations of the workers whose processes are not the first ones."""
        return self._members.generations

    def let_workers_scale(
        self,
        workers: list[str],
        servers: list[str],
        checkpoints: CheckpointsOfServers | None,
        servers_change: Callable[[], bool],
    ) -> ScaledWorkers:
        """Have workers join and leave; see `ScaledWorkers`."""
        self.scaling = ScaledWorkers(
            self._run, self._members, workers, servers, checkpoints, self, servers_change
        )
        return self.scaling

    # -- for workers that join and leave -------------------------------------------------

    def do(self, orders: Sequence[Order]) -> None:
        """Carry out orders of the machine."""
        self._do(orders)
        self._watch_deadline()

    def knows(self, worker: int) -> None:
        """A worker of this number joins."""
        self._numbers[worker_name(worker)] = worker
        if worker == len(self._first):
            self._first.append(0)
            self._uncounted.append(0)

    def divides_data(self, first: int, workers: int) -> None:
        """From this iteration on the data are for so many workers."""
        self._data.append((first, workers))

    def uncounted(self, worker: int) -> int:
        """Return how many iterations before those that it did itself a worker has not done."""
        return self._uncounted[worker]

    def has_not_done(self, worker: int, uncounted: int) -> None:
        """A worker that has joined has not done so many iterations before its first one."""
        self._uncounted[worker] = uncounted

    def begins(self, worker: int, first: int, scripts: JoiningScripts | None = None) -> None:
        """Tell a process that waits to begin with this iteration.

        scripts: what its script begins with.
        """
        name = worker_name(worker)
        self._first[worker] = first
        plan = self._late_plan()
        self._listener.send(name, plan if scripts is None else scripts.announced(plan, worker))
        self._tell_division(name)
        if scripts is not None:
            scripts.send(worker, first)

    def serve_by(self, servers: Sequence[str], divided: Divide) -> None:
        """Servers have joined or left, and workers that come back go on with these.

        divided: tells them of the servers' parts.
        """
        self._members.serve_by(servers)
        self._servers, self._divided = list(servers), divided

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
            if self._can_start and not members.is_retiring(worker):
                self._errors[worker] = error
                losses.comes_back(name)
            else:
                why = "" if losses.has_exited(name) else not_restarted(self._run.experiment)
                self._log(f"{error}; the others go on without it{why}")
                self._lost(name)
            if self.scaling is not None:
                self.scaling.lost(worker)
            members.keeps(worker, self._kept.iteration(worker))
            self._do(members.lost(worker, how, self._kernel.now, has_ended=has_ended))
        self._watch_deadline()
        return True

    @property
    def coming_back(self) -> list[str]:
        """Names of lost workers whose places other processes take."""
        return [name for name, worker in self._numbers.items() if self._is_coming_back(worker)]

    def _is_coming_back(self, worker: int) -> bool:
        return worker < self._members.workers and self._members.is_coming_back(worker)

    def goes_without(self, name: str) -> None:
        """Go on without a lost worker for whose next process there is no room.

        Raises:
            ConfigError: it is not coming back, or no other worker is left.
        """
        worker = self._numbers.get(name)
        if worker is None or not self._is_coming_back(worker):
            raise ConfigError(f"{name} is not coming back")
        is_of_join = self._joined_as(worker, self._members.generation(worker))
        was_restarted = self._members.is_starting(worker) and not is_of_join
        try:
            orders = self._members.goes_without(worker)
        except ProtocolError as error:
            raise ConfigError(str(error)) from None
        if was_restarted:
            self._observer.not_restarted(worker)
        self._lost(name)
        self._losses.goes_without(name)
        self._processes.release(name)
        if self.scaling is not None:
            self.scaling.lost(worker)
        self.do(orders)

    def _joined_as(self, worker: int, generation: int) -> bool:
        """True if this generation of a worker is a process that joined, and replaces none."""
        return self.scaling is not None and self.scaling.arriving.hears(worker, generation)

    def _killed_at_its_end(self, name: str) -> None:
        """Tell the servers that a worker has left: its own message may not have reached them."""
        if name in self._numbers and self._ending() is None:
            worker, now = self._numbers[name], self._kernel.now
            self._do(self._members.lost(worker, "was killed at its end", now, has_ended=True))

    def _was_replaced(self, name: str) -> bool:
        """The process of this name has ended: return True if another one takes its place."""
        worker = self._numbers.get(name)
        if self.scaling is not None:
            self.scaling.process_ended(name)
        if worker is None or not self._members.awaits_end(worker):
            return False  # it is the present process, or one that joins
        self._do(self._members.process_ended(worker, self._kernel.now))
        return True

    # -- messages ------------------------------------------------------------------------

    def take(self, name: str, message: WireMessage) -> bool:
        """Handle a message of a process; False if it is not about a process that comes back."""
        if isinstance(message, WorkerReplaced):
            self._take_confirmation(name, message)
            return True
        if self.scaling is not None and self.scaling.take(name, message):
            return True
        worker = self._numbers.get(name)
        if worker is None:
            return False
        if isinstance(message, ProcessDone):
            self._members.finished(worker)
        elif self._members.is_starting(worker) and isinstance(message, JoinRun):
            kept, joins = self._kept.of(worker), self._kept.joins_again(worker)
            self._listener.send(name, self._kept.announced(self._late_plan(), kept))
            self._tell_division(name)
            done = self._first[worker] if joins else self._members.done(worker)
            self._kept.send(kept, {worker: done}, joins=joins)
            return True
        elif self._members.is_starting(worker) and isinstance(message, Ready):
            self._members.began(worker)
            self._listener.send(name, self._go())
            self._is_ready(worker)
            if (stop := self._ending()) is not None:
                self._listener.send(name, stop)
            return True
        return False

    def _is_ready(self, worker: int) -> None:
        """The new process of a worker was told to start."""
        if self.scaling is None or not self.scaling.began(worker):
            self._began(worker)

    def _late_plan(self) -> Plan:
        plan = self._reports.plan
        assert plan is not None
        number = 0 if self._divided is None else self._divided.division.number
        return msgspec.structs.replace(
            plan, first=list(self._first), late=True, data=list(self._data), division=number
        )

    def _tell_division(self, name: str) -> None:
        """After the plan: tell a worker of the present servers, if some have joined or left."""
        if self._divided is not None:
            self._listener.send(name, self._divided)

    def _may_join(self, name: str) -> bool:
        worker = self._numbers.get(name)
        if self.scaling is not None and self.scaling.arriving.includes(name):
            return True
        return worker is not None and self._members.is_starting(worker)

    def _take_confirmation(self, name: str, message: WorkerReplaced) -> None:
        try:
            if name not in self._servers or name == SCHEDULER:
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
                    if self.scaling is None or not self.scaling.starts(order):
                        self._start(order)
                case NotJoined(worker, how):
                    assert self.scaling is not None
                    self.scaling.arriving.not_joined(worker, how)
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
        if not self._joined_as(order.worker, order.generation):  # else it is heard already
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
        completed = None
        if not self._passes_over:
            completed = order.first - self._uncounted[order.worker]
        self._reports.begins_again(name, order.generation, order.worker, completed)
        self._observer.recovered(order)
        assert self._processes.start is not None
        self._processes.start(order.worker, order.generation)
