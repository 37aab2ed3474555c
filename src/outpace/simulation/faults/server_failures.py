"""What fails in a run in virtual time with servers, and how it goes on.

The loss of a worker is handled by the machine of real runs (`sync.membership`). After the loss of a
server all processes begin again. The coordinator's own messages take no time: an order to a server
waits behind the messages that have arrived there.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from outpace.errors import RunError
from outpace.kernel import Alarm
from outpace.simulation.faults.failing import Failures
from outpace.simulation.faults.processes import Order
from outpace.support.units import Time, nanoseconds
from outpace.sync.membership import BeginAgain, EndRun, Kill, Loss, Removed, Replace, Start
from outpace.sync.membership import Order as MemberOrder
from outpace.sync.messages import Lost, server_name, worker_name

if TYPE_CHECKING:
    from outpace.simulation.servers import Servers
    from outpace.simulation.virtual import VirtualRun


class ServerFailures(Failures):
    """The life of a run with servers and failures."""

    def __init__(self, run: VirtualRun, exchange: Servers, *more: Any) -> None:
        super().__init__(run, exchange, *more)
        self._with_servers = exchange
        self._alarm: Alarm | None = None  # for the next deadline of a replacement

    # -- checkpoints ---------------------------------------------------------------

    @property
    def servers_stand_until(self) -> Time:
        return max(self._processes[name].until for name in self._servers)

    @property
    def all_servers_live(self) -> bool:
        return all(self._processes[name].alive for name in self._servers)

    def write(self, part: int, size_bytes: int) -> Time:
        writing = nanoseconds(self._repairs.writing_s(size_bytes))
        before = max(self.kernel.now, self.servers_stand_until)
        self._processes[server_name(part)].stand_still(writing)
        return max(0, self.servers_stand_until - before)

    # -- lost workers --------------------------------------------------------------

    def _note_loss(self, loss: Loss) -> None:
        name = loss.name
        if name in self._numbers:
            failed = self._failed_at[name]
            self._costs.worker_losses += 1
            self._costs.add("detection", self.kernel.now - failed)
            self._interruptions.lost(loss, self._numbers[name], failed)

    def _follow(self, orders: Sequence[MemberOrder]) -> None:
        attempt = self._members.attempt
        for order in orders:
            match order:
                case Replace():
                    lost = Lost(order.worker, order.stays)
                    obeyed = partial(self._confirm, attempt, order)
                    self._run.network.join(order.server).mailbox.put(Order(lost, obeyed))
                case Start():
                    self._replace(order)
                    ready = self.kernel.now + nanoseconds(self._repairs.worker_s)
                    until = self._run.network.obstacles.until(worker_name(order.worker))
                    self.kernel.call_at(max(ready, until), self._begin_one, (attempt, order))
                case Removed():
                    self._remove(order)
                case BeginAgain():
                    self._begin_all_again(order)
                case EndRun(reason):
                    raise RunError(reason)
                case Kill():
                    pass  # it has ended
        self._set_alarm()

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self.kernel.call_off(self._alarm)
        due, self._alarm = self._members.next_deadline, None
        if due is not None:
            self._alarm = self.kernel.set_alarm(max(due, self.kernel.now), self._look)

    def _look(self) -> None:
        self._follow(self._members.on_time(self.kernel.now))

    def _confirm(self, attempt: int, order: Replace) -> None:
        """A server knows that a worker is lost."""
        if attempt != self._members.attempt:
            return  # all processes have begun again
        shard = self._with_servers.shard_of(order.server)
        reached = (-1, 0) if shard is None else (shard.watermark(order.worker), shard.clock)
        self._follow(
            self._members.confirmed(
                order.server, order.worker, order.generation, *reached, self.kernel.now
            )
        )

    def _replace(self, start: Start) -> None:
        """Note that another process is started for a worker."""
        self._interruptions.restarted(start)
        name = worker_name(start.worker)
        computing, failed = self._processes[name].computing, self._failed_at[name]
        if computing is not None and computing[0] >= start.first:  # its push has not arrived
            self._costs.add("repeated", failed - computing[1])

    def _begin_one(self, what: tuple[int, Start]) -> None:
        """Let the other process of a worker begin: it is ready."""
        attempt, start = what
        if attempt != self._members.attempt:
            return
        self._members.began(start.worker)
        self._set_alarm()
        name, now = worker_name(start.worker), self.kernel.now
        self._costs.add(
            "restart", now - self._failed_at.pop(name) - nanoseconds(self._repairs.detected_s)
        )
        self._interruptions.began(start.worker, now)
        self._with_servers.start_worker(start.worker, start.first)

    def _remove(self, removed: Removed) -> None:
        """Continue without a worker."""
        self._interruptions.removed(removed, self.kernel.now)
        self._end_if_over()
