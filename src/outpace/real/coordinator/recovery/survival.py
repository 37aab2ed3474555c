"""Has a run survive the loss of processes.

`sync.membership` decides; here its orders become messages, and the answers its facts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

import msgspec

from outpace.engine.losses import not_restarted
from outpace.engine.scripts.anew import REMEDY, begin_anew
from outpace.engine.scripts.sameness import SameGradients
from outpace.engine.servers import leaves_behind
from outpace.errors import ConfigError, ProtocolError, RunError
from outpace.kernel import Alarm
from outpace.real.coordinator.roles import RunState, with_room
from outpace.real.coordinator.saving.checkpoints import Checkpoints
from outpace.real.coordinator.saving.kept_scripts import KeptScripts
from outpace.real.coordinator.with_servers import WithServers
from outpace.real.coordinator.without_servers import WithoutServers
from outpace.real.net.messages import (
    JoinRun,
    ModelBuffers,
    Plan,
    ProcessDone,
    Ready,
    ReplaceWorker,
    TrainingDone,
    WorkerReplaced,
)
from outpace.record.totals import Totals
from outpace.sync.membership import (
    BeginAgain,
    EndRun,
    Kill,
    Loss,
    Order,
    Removed,
    Replace,
    Start,
)
from outpace.sync.messages import SCHEDULER, WireMessage, worker_name

StartWorker: TypeAlias = Callable[[int, int], None]


class GroupLost(RunError):
    """Raised when a lost process ends this attempt: all begin again, or the run ends.

    Attributes:
        names: of the processes.
        order: how all begin again; None: the run ends.
    """

    def __init__(self, text: str, names: Collection[str], order: BeginAgain | None = None) -> None:
        super().__init__(text)
        self.names, self.order = names, order


class Survival:
    """Brings lost processes back, or has the run go on without them.

    Args:
        architecture: has this process forget the old process of a worker.
        checkpoints: those of the run; None: none are taken.
        kept: what the scripts of new processes go on with.
        start_worker: starts a process of a generation for a worker.
    """

    def __init__(
        self,
        run: RunState,
        architecture: WithServers | WithoutServers,
        checkpoints: Checkpoints | None,
        first_gradients: SameGradients,
        kept: KeptScripts,
        start_worker: StartWorker,
    ) -> None:
        self._run, self._roles, self._numbers = run, run.roles, run.roles.numbers
        self._members, self._kernel, self._listener = run.members, run.kernel, run.listener
        self._launcher, self._architecture, self._kept = run.launcher, architecture, kept
        self._checkpoints, self._first_gradients = checkpoints, first_gradients
        self._start_worker, self._notes = start_worker, run.setting.interruptions
        self._alarm: Alarm | None = None  # for the next deadline of a replacement
        self._losses: dict[str, Loss] = {}  # of workers that come back, the last ones
        self._first = [0] * len(self._numbers)  # iterations with which new processes begin

    @property
    def absent(self) -> list[str]:
        """Names of the workers that are lost and not replaced."""
        return [name for name, worker in self._numbers.items() if self._members.has_left(worker)]

    # -- losses ------------------------------------------------------------------------

    def take_losses(self, losses: Sequence[Loss], note: str) -> None:
        """Bring these processes back, or go on without them.

        Args:
            losses: the one that is known most directly first.
            note: see `Membership.lost`.

        Raises:
            GroupLost: all processes are to begin again.
            RunError: the run ends.
        """
        run, members, roles = self._run, self._members, self._roles
        is_ending, without_servers = run.stop_reason is not None, not roles.servers
        has_scripts = any(join.follows for join in roles.joined.values())
        for loss in losses:
            if loss.name in self._numbers:
                worker = self._numbers[loss.name]
                members.keeps(worker, self._kept.iteration(worker))
        orders = members.lost(
            losses,
            self._kernel.now,
            checkpoint=0 if run.setting.saving is None else run.setting.saving.keeper.last,
            is_ending=is_ending and not (without_servers and has_scripts),
            note=note,
        )
        match orders:
            case [BeginAgain(why, names) as order]:
                raise GroupLost(why, names, order)
            case [EndRun(reason, names)]:
                raise GroupLost(reason, names) if names else RunError(reason)
        for loss in losses:
            at = max(0, run.clock.now - roles.lost_for([loss.name], self._kernel.now))
            self._notes.lost(loss, self._numbers[loss.name], at)
            if members.is_coming_back(self._numbers[loss.name]):
                self._losses[loss.name] = loss
                roles.comes_back(loss.name)
                continue
            if is_ending or without_servers:
                run.log(f"{loss}; the run ends without it")
            else:
                why = "" if loss.has_exited else not_restarted(run.experiment)
                run.log(f"{loss}; the others go on without it{why}")
            self._go_on_without(loss.name)
        self._do(orders)

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
            self._notes.not_restarted(worker)
        self._go_on_without(name)
        self._launcher.release(name)
        self._do(orders)

    def killed_at_its_end(self, name: str) -> None:
        """Tell the servers that a worker has left: its own message may not have reached them."""
        if name in self._numbers and self._run.stop() is None:
            self._do(self._members.lost([Loss(name, "was killed at its end")], self._kernel.now))

    def is_replaced(self, name: str) -> bool:
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
            if (buffers := self._run.buffers) is not None:
                self._listener.send(name, ModelBuffers(buffers))
            self._kept.send(kept, {worker: self._members.done(worker)})
            return True
        elif self._members.is_starting(worker) and isinstance(message, Ready):
            self._members.began(worker)
            self._listener.send(name, self._run.go())
            if self._checkpoints is not None:
                self._checkpoints.began(name)
            self._notes.began(worker, self._run.clock.now)
            if (stop := self._run.stop()) is not None:
                self._listener.send(name, stop)
            return True
        return False

    def _late_plan(self) -> Plan:
        plan = self._run.plan
        assert plan is not None
        return msgspec.structs.replace(plan, first=list(self._first), late=True)

    def may_join(self, name: str) -> bool:
        """True if this name is of a worker whose new process is expected, or not ready yet."""
        worker = self._numbers.get(name)
        return worker is not None and self._members.is_starting(worker)

    def _take_confirmation(self, name: str, message: WorkerReplaced) -> None:
        try:
            if name not in self._roles.servers:
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
                    self._launcher.kill(worker_name(worker))
                case Start():
                    self._start(order)
                case Removed(worker, lost):
                    if lost or worker_name(worker) not in self._roles.finished:
                        self._notes.removed(order, self._run.clock.now)
                case EndRun(reason):
                    why = self._launcher.no_room(self.coming_back)
                    raise RunError(with_room(reason, why, is_saved=False))
        if self._alarm is not None:
            self._kernel.call_off(self._alarm)
        due, self._alarm = self._members.next_deadline, None
        if due is not None:
            self._alarm = self._kernel.set_alarm(max(due, self._kernel.now), self._look)

    def _look(self) -> None:
        self._do(self._members.on_time(self._kernel.now))

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
        assert isinstance(self._architecture, WithServers)
        watermark, clock = await self._architecture.replace(order.worker, stays=order.stays)
        done = WorkerReplaced(order.worker, order.generation, watermark, clock)
        self._confirm(SCHEDULER, done)

    def _start(self, order: Start) -> None:
        name = worker_name(order.worker)
        self._first[order.worker] = order.first
        self._run.log(
            f"{self._losses[name]}; it is restarted at iteration {order.first} "
            f"(generation {order.generation})"
        )
        self._keep_sums(name, order)
        self._notes.restarted(order)
        if self._checkpoints is not None and order.worker in self._checkpoints.unrepeatable:
            self._run.log(f"{begin_anew([order.worker], 'that the servers have')}: {REMEDY}")
        self._start_worker(order.worker, order.generation)

    def _keep_sums(self, name: str, order: Start) -> None:
        """Keep the sums of a process whose place another one takes.

        The process did not report its last iterations if it was killed, and has reported more if
        servers died with them.
        """
        totals_of, worker = self._run.totals_of, order.worker
        totals = totals_of.pop(name, None) or Totals()
        totals_of[f"{name} before generation {order.generation}"] = totals
        # Of workers that pass over iterations it is not known which they have completed.
        if not leaves_behind(self._run.experiment):
            unreported = order.first - self._run.totals.iterations.get(worker, 0)
            totals.iterations[worker] = totals.iterations.get(worker, 0) + unreported

    def _go_on_without(self, name: str) -> None:
        """The run goes on without this worker."""
        self._roles.without.add(name)
        if isinstance(self._architecture, WithoutServers):
            self._architecture.lose(name)
        self._launcher.kill(name)
        if self._checkpoints is not None:
            self._checkpoints.left(name, lost=True)
        self._first_gradients.has_left(name)
        self._run.announced.add(name, TrainingDone())
