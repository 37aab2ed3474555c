"""The table of the roles of a run, and what the parts of its coordinator share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
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
from outpace.sync.messages import WireMessage, server_name, worker_name


class Announcements:
    """Messages that say how far a process has come."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._mailbox = Mailbox[str](kernel, "announcements of the processes")
        self._heard: Counter[tuple[str, type[WireMessage]]] = Counter()
        # What is waited for, and the processes that have not done it.
        self.awaited: tuple[str, list[str]] = "", []

    def add(self, name: str, message: WireMessage) -> None:
        self._heard[name, type(message)] += 1
        self._mailbox.put(name)

    async def all(
        self, names: list[str], kind: type[WireMessage], what: str, limit_s: float, times: int = 1
    ) -> None:
        """Wait until each of these processes has sent `times` messages of this kind.

        what: what such a message announces, for the error.
        """
        since = self._kernel.now
        while missing := [name for name in names if self._heard[name, kind] < times]:
            await self.next(limit_s, since, what, missing)

    async def next(
        self, limit_s: float | None, since: Time | None, what: str, missing: Sequence[str]
    ) -> None:
        """Wait for the next message, up to `limit_s` after `since`; without limit if one is None.

        Raises:
            RunError: the time is over; names the `missing` processes and `what` they did not do.
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


ENDED, SILENT, REPORTED = range(3)  # how a loss is known, the most direct way first
_BEFORE: Final = "the run until its checkpoint"  # a name for its sums


class Roles:
    """The servers and workers of a run by name, and how far the process of each has come.

    Attributes:
        joined: what each has said when it joined.
        left: workers that take no more part in the training.
        finished: processes that have done all their work.
        failed: processes that have reported an error.
        lost: by name of a lost process: how its loss was found out, and what happened to it.
        without: lost processes that the run goes on without.
        ended: processes whose end the launcher has reported.
        exited: those of them that were not killed.
    """

    def __init__(self, servers: int, workers: int) -> None:
        self.servers = [server_name(server) for server in range(servers)]
        self.workers = [worker_name(worker) for worker in range(workers)]
        self.numbers = {name: worker for worker, name in enumerate(self.workers)}
        self.joined: dict[str, JoinRun] = {}
        self.left: set[str] = set()
        self.finished: set[str] = set()
        self.failed: set[str] = set()
        self.lost: dict[str, tuple[int, str]] = {}
        self.without: set[str] = set()
        self.ended: set[str] = set()
        self.exited: set[str] = set()
        self._since: dict[str, Time] = {}  # of the kernel: when a loss was known first

    def awaited(self, names: Collection[str], *, early: bool) -> list[str]:
        """Return the names of processes that have not finished and may still do so.

        early: the run ends early: no process that is lost or has failed is waited for.
        """
        gone = self.failed.union(self.lost) if early else self.without
        return [name for name in names if name not in self.finished and name not in gone]

    @property
    def undecided(self) -> list[str]:
        """The lost processes that no decision has been made about yet.

        Those whose loss is known most directly are first.
        """
        settled = self.finished | self.failed | self.without
        found = [name for name in self.lost if name not in settled]
        return sorted(found, key=lambda name: self.lost[name][0])

    def lose(self, name: str, how: int, reason: str, now: Time) -> bool:
        """Note that a process is lost; False if that was known, as directly, or does not matter."""
        known = self.lost.get(name)
        if name in self.finished | self.failed | self.without or (known and known[0] <= how):
            return False
        if known is None:
            self._since[name] = now
        self.lost[name] = how, reason
        return True

    def has_ended(self, name: str) -> bool:
        """True if the launcher has said that this lost process has ended."""
        return name in self.lost and self.lost[name][0] == ENDED

    def lost_for(self, names: Collection[str], now: Time) -> Time:
        """Return for how long (ns) the first loss of these processes has been known."""
        since = [self._since[name] for name in names if name in self._since]
        return now - min(since) if since else 0

    def comes_back(self, name: str) -> None:
        """Another process takes the place of a lost one."""
        self.lost.pop(name, None)
        for known in (self.failed, self.ended, self.exited):
            known.discard(name)


class RunState:
    """What the parts of the coordinator of one run share.

    Attributes:
        resume: where the run goes on; None: it begins.
        members: decides what follows when processes are lost.
        totals_of: the sums that each process has reported.
        reported_at: when each did so the last time, by the kernel's clock.
        plan: of the run, once it is made.
        buffers: worker 0's model buffers, with which all workers begin; None: there are none.
        stop_reason: why the workers must stop; None: they go on.
        early: the run ends early: losses no longer matter.
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
        self.roles = Roles(experiment.servers_in_run, experiment.workers)
        self.members = setting.members
        self.members.begin(experiment.workers, self.roles.servers)
        self.announced = Announcements(kernel)
        self.totals_of: dict[str, Totals] = {} if resume is None else {_BEFORE: resume.totals}
        self.reported_at: dict[str, Time] = {}
        self.plan: Plan | None = None
        self.buffers: Block | None = None
        self.early = False
        self.stop_reason: str | None = None

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
        """True if workers are told to stop, or some have trained."""
        return self.stop_reason is not None or bool(self.roles.left)

    def go(self) -> Go:
        """Return the order to start."""
        return Go(self.clock.origin, boot_id())

    def stop(self) -> StopRun | None:
        """Return the order to stop, once it was given."""
        return None if self.stop_reason is None else StopRun(self.stop_reason, self.early)

    def awaited(self, names: Collection[str]) -> list[str]:
        """Return the names of processes that have not finished and may still do so."""
        return self.roles.awaited(names, early=self.early)


def with_room(error: str, no_room: str, *, is_saved: bool) -> str:
    """Return an error about late processes, with the room that they lack and what to do.

    no_room: see `Launcher`. is_saved: the run can be resumed from a checkpoint.
    """
    if not no_room:
        return error
    then = "; then go on from the last checkpoint (--resume)" if is_saved else ""
    return f"{error}: {no_room}{then}"


def machines_of(joined: Mapping[str, JoinRun]) -> dict[str, str]:
    """Return the name of the machine of each process, by the name of the process.

    This is its host name. Of several machines with one host name, all but the first get a number:
    "host (2)".
    """
    names: dict[str, str] = {}  # by id
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
