"""The state of a run that the parts of its coordinator share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from outpace.blocks.block import Block
from outpace.config.experiment import Experiment
from outpace.engine.resuming import ResumePoint
from outpace.errors import RunError
from outpace.kernel import Kernel, Mailbox, TimedOut
from outpace.real.coordinator.setting import Setting
from outpace.real.net.clock import RealClock
from outpace.real.net.messages import Go, JoinRun, Plan, StopRun
from outpace.real.net.transport import Listener
from outpace.real.process.launcher import Launcher
from outpace.record.totals import Totals
from outpace.support.machine import boot_id
from outpace.support.units import Time, seconds
from outpace.sync.membership.events import AllBegin
from outpace.sync.membership.table import Table
from outpace.sync.messages import WireMessage, server_name, worker_name

ANSWER_S: Final = 5.0  # seconds for a cluster to answer whether it has room


class Announcements:
    """Messages about the progress of processes."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._mailbox = Mailbox[str](kernel, "announcements of the processes")
        self._heard: Counter[tuple[str, type[WireMessage]]] = Counter()
        # The step that is waited for, and the processes that have not done it.
        self.awaited: tuple[str, list[str]] = "", []

    def add(self, name: str, message: WireMessage) -> None:
        self._heard[name, type(message)] += 1
        self._mailbox.put(name)

    def has_heard(self, name: str, kind: type[WireMessage]) -> bool:
        return self._heard[name, kind] > 0

    async def all(
        self, names: list[str], kind: type[WireMessage], what: str, limit_s: float, times: int = 1
    ) -> None:
        """Wait until each of these processes has sent `times` messages of this kind.

        what: the announced event as text, for the error.
        """
        since = self._kernel.now
        while missing := [name for name in names if self._heard[name, kind] < times]:
            await self.next(limit_s, since, what, missing)

    async def next(
        self, limit_s: float | None, since: Time | None, what: str, missing: Sequence[str]
    ) -> None:
        """Wait for the next message, until `limit_s` after `since`; None: without limit.

        Raises:
            RunError: if the time is over; the error names the `missing` processes and `what` they
                did not do.
        """
        self.awaited = what, list(missing)
        if limit_s is None or since is None:
            await self._mailbox.get()
            return
        try:
            with self._kernel.timeout(max(0.0, limit_s - seconds(self._kernel.now - since))):
                await self._mailbox.get()
        except TimedOut:
            raise RunError(f"{', '.join(missing)} did not {what} within {limit_s:.0f} s") from None


_BEFORE: Final = "the run until its checkpoint"  # name of a process for its sums


class Known(IntEnum):
    """How a loss is known, with the most direct way first."""

    ENDED = 0  # reported by the launcher
    SILENT = 1
    REPORTED = 2  # reported by another process
    NOT = 3  # the loss is not known


@dataclass(slots=True)
class Suspect:
    """A process that is perhaps lost, until the consequences are decided.

    Attributes:
        known: how its loss is known.
        how: text that says what happened to it.
        since: when its loss was first known (the kernel's time).
        has_failed: True if it has reported an error.
        has_ended: True if the launcher has reported its end.
        has_exited: True if it exited by itself and was not killed.
    """

    known: Known = Known.NOT
    how: str = ""
    since: Time = 0
    has_failed: bool = False
    has_ended: bool = False
    has_exited: bool = False

    @property
    def is_lost(self) -> bool:
        return self.known is not Known.NOT


class RunState:
    """The state that the parts of the coordinator of one run share.

    Attributes:
        resume: the checkpoint from which the run is resumed; None: it begins.
        workers, servers: names of the processes.
        numbers: the number of each worker, by name.
        members: decides what follows when processes are lost, or other numbers are asked for.
        joined: the message with which each process has joined.
        suspects: processes that are perhaps lost, by name.
        totals_of: the sums reported by each process.
        reported_at: time of the newest report of each process, by the kernel's clock.
        plan: the plan of the run, once it is made.
        buffers: worker 0's model buffers, with which all workers begin; None: there are none.
        stop_reason: why the workers must stop; None: they continue.
        early: True if the run ends early; then losses do not matter.
    """

    def __init__(
        self,
        setting: Setting,
        clock: RealClock,
        kernel: Kernel,
        listener: Listener,
        launcher: Launcher,
    ) -> None:
        experiment: Experiment = setting.experiment
        resume: ResumePoint | None = setting.resume
        self.setting, self.experiment, self.resume = setting, experiment, resume
        self.log, self.clock, self.kernel, self.listener = setting.log, clock, kernel, listener
        self.launcher = launcher
        self.workers = [worker_name(worker) for worker in range(experiment.workers)]
        self.servers = [server_name(server) for server in range(experiment.servers_in_run)]
        self.numbers = {name: worker for worker, name in enumerate(self.workers)}
        self.members = setting.members
        last = 0 if setting.saving is None else setting.saving.keeper.last
        begin = AllBegin(len(self.workers), len(self.servers), checkpoint=last)
        self.members.take(begin, kernel.now)
        self.joined: dict[str, JoinRun] = {}
        self.suspects: dict[str, Suspect] = {}
        self.announced = Announcements(kernel)
        self.totals_of: dict[str, Totals] = {} if resume is None else {_BEFORE: resume.totals}
        self.reported_at: dict[str, Time] = {}
        self.plan: Plan | None = None
        self.buffers: Block | None = None
        self.early = False
        self.stop_reason: str | None = None

    @property
    def table(self) -> Table:
        """The present table of the processes."""
        return self.members.table

    @property
    def totals(self) -> Totals:
        """Totals so far, summed over all processes."""
        total = Totals()
        for part in self.totals_of.values():
            total.add(part)
        return total

    @property
    def not_computed(self) -> Mapping[int, int]:
        """See `ResumePoint`; empty if the run begins."""
        return {} if self.resume is None else self.resume.not_computed

    @property
    def is_ending(self) -> bool:
        """True if workers were told to stop, or if some have finished training."""
        has_trained = any(worker.has_trained for worker in self.table.workers)
        return self.stop_reason is not None or has_trained

    def go(self) -> Go:
        """Return the order to start."""
        return Go(self.clock.origin, boot_id())

    def stop(self) -> StopRun | None:
        """Return the order to stop, once it was given."""
        return None if self.stop_reason is None else StopRun(self.stop_reason, self.early)

    def awaited(self, names: Collection[str]) -> list[str]:
        """Return the processes among these that have not finished but may still do so.

        A run that ends early does not wait for processes that are lost or have failed.
        """
        gone = set(self.table.absent)
        if self.early:
            each = self.suspects.items()
            gone.update(name for name, suspect in each if suspect.is_lost or suspect.has_failed)
        return [
            name for name in names if name not in gone and not self.table.role(name).has_finished
        ]


def with_room(error: str, no_room: Future[str], *, is_saved: bool) -> str:
    """Return an error about late processes, with the room that they lack and what to do.

    Args:
        no_room: see `Launcher`. It is left out if there is no answer within some seconds.
        is_saved: True if the run can be resumed from a checkpoint.
    """
    try:
        why = no_room.result(ANSWER_S)
    except Exception:  # the cluster does not answer, and its library may raise any error
        why = ""
    if not why:
        return error
    then = "; then continue from the last checkpoint (--resume)" if is_saved else ""
    return f"{error}: {why}{then}"


def machines_of(joined: Mapping[str, JoinRun]) -> dict[str, str]:
    """Return the name of the machine of each process, by the name of the process.

    This is the host name. If several machines have the same host name, all except the first get a
    number: "host (2)".
    """
    names: dict[str, str] = {}  # names by id
    found = {}
    for process, join in joined.items():
        host = "".join(each if each.isprintable() else "?" for each in join.host) or process
        machine = join.machine or f"host {host}"
        if machine not in names:
            name, number = host, 1
            while name in names.values():
                number += 1
                name = f"{host} ({number})"
            names[machine] = name
        found[process] = names[machine]
    return found
