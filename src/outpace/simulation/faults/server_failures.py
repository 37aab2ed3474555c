"""What fails in a run in virtual time with servers, and how it goes on.

The loss of a worker is handled by the machine of real runs (`sync.membership`). After the loss of a
server all processes begin again. The coordinator's own messages take no time: an order to a server
waits behind the messages that have arrived there.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from outpace.engine.servers import has_scheduler
from outpace.errors import RunError
from outpace.kernel import Alarm
from outpace.record.event_log import EventLog
from outpace.record.trace import Trace
from outpace.simulation.faults.failing import Failures
from outpace.simulation.faults.processes import MortalProcess, Order
from outpace.simulation.faults.saving import Kept
from outpace.support.units import Time, nanoseconds
from outpace.sync.checkpoint.state import gaps
from outpace.sync.membership import EndRun, Kill, Membership, Removed, Replace, Rules, Start
from outpace.sync.membership import Order as MemberOrder
from outpace.sync.messages import SCHEDULER, Lost, server_name, worker_name

if TYPE_CHECKING:
    from outpace.simulation.servers import Simulation


class ServerFailures(Failures):
    """The life of a run with servers and failures."""

    def __init__(self, run: Simulation, trace: Trace, events: EventLog) -> None:
        super().__init__(run, trace, events)
        self._simulation = run
        self._members = self._new_members()
        self._alarm: Alarm | None = None  # for the next deadline of a replacement

    def _new_members(self) -> Membership:
        """Return the workers of an attempt of the run."""
        experiment = self.experiment
        # A process is ready when the configuration says so, however late that is.
        rules = Rules(experiment.on_worker_loss, start_s=2e9)
        schedulers = [SCHEDULER] if has_scheduler(experiment) else []
        return Membership(experiment.workers, self._servers, rules, schedulers)

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

    def _lose_process(self, process: MortalProcess, how: str) -> None:
        name, now, failed = process.name, self.kernel.now, self._failed_at[process.name]
        worker = self._numbers.get(name)
        if worker is None:
            self._begin_all_again(process, how)
            return
        self._costs.worker_losses += 1
        self._costs.add("detection", now - failed)
        self._interruptions.lost(worker, failed)
        generation = self._generations.get(name, 0)
        self._events.add("lost", "warning", role=name, generation=generation, why=f"{name} {how}")
        self._follow(self._members.lost(worker, how, now, has_ended=True))

    def _note_finished(self, worker: int) -> None:
        self._members.finished(worker)

    def _follow(self, orders: Sequence[MemberOrder]) -> None:
        members = self._members
        for order in orders:
            match order:
                case Replace():
                    lost = Lost(order.worker, order.stays)
                    obeyed = partial(self._confirm, members, order)
                    self._run.network.join(order.server).put(Order(lost, obeyed))
                case Start():
                    self._replace(order)
                    ready = self.kernel.now + nanoseconds(self._repairs.worker_s)
                    until = self._run.network.obstacles.until(worker_name(order.worker))
                    self.kernel.call_at(max(ready, until), self._begin_one, (members, order))
                case Removed():
                    self._remove(order)
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

    def _confirm(self, members: Membership, order: Replace) -> None:
        """A server knows that a worker is lost."""
        if members is not self._members:
            return  # all processes have begun again
        shard = self._simulation.shard_of(order.server)
        reached = (-1, 0) if shard is None else (shard.watermark(order.worker), shard.clock)
        self._follow(
            members.confirmed(
                order.server, order.worker, order.generation, *reached, self.kernel.now
            )
        )

    def _replace(self, start: Start) -> None:
        """Note that another process is started for a worker."""
        self._recovery.restarts += 1
        self._recovery.updates_lost += start.lost
        self._interruptions.restarted(start.worker, start.first)
        name = worker_name(start.worker)
        self._generations[name] = start.generation
        self._events.add(
            "restarted",
            role=name,
            generation=start.generation,
            first=start.first,
            updates_lost=start.lost,
        )
        computing, failed = self._processes[name].computing, self._failed_at[name]
        if computing is not None and computing[0] >= start.first:  # its push has not arrived
            self._costs.add("repeated", failed - computing[1])

    def _begin_one(self, what: tuple[Membership, Start]) -> None:
        """Let the other process of a worker begin: it is ready."""
        members, start = what
        if members is not self._members:
            return
        members.began(start.worker)
        self._set_alarm()
        name, now = worker_name(start.worker), self.kernel.now
        self._costs.add(
            "restart", now - self._failed_at.pop(name) - nanoseconds(self._repairs.detected_s)
        )
        self._interruptions.began(start.worker, now)
        self._simulation.start_worker(start.worker, start.first)

    def _remove(self, removed: Removed) -> None:
        """Continue without a worker."""
        self._recovery.updates_lost += removed.lost
        self._interruptions.removed(removed.worker, self.kernel.now)
        self.gone.add(removed.worker)
        self._end_if_over()

    def _restore_from(self, kept: Kept) -> None:
        self._members = self._new_members()
        self._set_alarm()
        self._recovery.updates_lost += gaps(kept.states)
        super()._restore_from(kept)
