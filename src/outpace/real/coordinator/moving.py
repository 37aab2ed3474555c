"""Servers that join and leave while the training goes on: the coordinator's part.

1. It plans the new division, and starts the servers that join. They get the plan and the order to
   start, and wait for their parts.
2. It tells all servers of the division. When all know of it, it tells the workers, and the servers
   that they may hand pieces over (`sync.moving`).
3. When all servers have said that they have their parts, or have none any more, those without a
   part end.

Until the second step nothing has changed: if a server that joins is lost, or does not join in time,
it is dropped. Any later loss has all processes begin again, or ends the run. A number is never used
for a second server.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from outpace.blocks.block import Block, value_of
from outpace.blocks.division import Division, divided_anew, moved, size_of
from outpace.blocks.recutting import Recut
from outpace.engine.servers import why_servers_stay
from outpace.errors import ConfigError, RunError
from outpace.real.coordinator.evaluation.snapshots import Snapshots
from outpace.real.coordinator.own_collectives import why_collectives
from outpace.real.coordinator.recovery.losses import how_lost
from outpace.real.coordinator.recovery.run_around import RunAround
from outpace.real.coordinator.saving.of_servers import CheckpointsOfServers
from outpace.real.net.messages import JoinRun, Ready, StopRun
from outpace.real.net.moving_messages import (
    Divide,
    DivisionBegun,
    DivisionKnown,
    wire_division,
)
from outpace.real.net.transport import FIRST
from outpace.support.units import Time, nanoseconds, seconds
from outpace.support.words import plural
from outpace.sync.messages import WireMessage, server_name

if TYPE_CHECKING:
    from outpace.real.coordinator.recovery.replacements import Replacements
    from outpace.real.coordinator.scaled_workers import ScaledWorkers

_LIMIT_S: Final = 60.0  # for the servers that join
_LOOK_AGAIN_S: Final = 0.05
_MOST: Final = 1000


class Told(Protocol):
    """Is told of the end of a change."""

    def __call__(self, *, is_done: bool, text: str) -> None: ...


class _Phase(Enum):
    """How far a new division is."""

    NONE = auto()
    STARTING = auto()  # servers that join are awaited
    TELLING = auto()  # all servers hear of it
    MOVING = auto()  # the workers go over, and the parts move


class MovingServers:
    """The divisions of a run.

    Args:
        servers: names of the servers; changed when they join and leave.
        workers: names of all workers that there are or have been.
        checkpoints: those of the run; None: none are taken.
        replacements, scaling: of the workers, which are told of the servers of a new division.
    """

    def __init__(
        self,
        run: RunAround,
        servers: list[str],
        workers: list[str],
        snapshots: Snapshots,
        *,
        checkpoints: CheckpointsOfServers | None,
        replacements: Replacements,
        scaling: ScaledWorkers,
    ) -> None:
        self._experiment, self._kernel, self._listener = run.experiment, run.kernel, run.listener
        self._losses, self._reports, self._processes = run.losses, run.reports, run.processes
        self._observer, self._log, self._go = run.observer, run.log, run.go
        self._ending = run.ending
        self._servers, self._workers, self._snapshots = servers, workers, snapshots
        self._checkpoints = checkpoints
        self._replacements, self._scaling = replacements, scaling
        begins_again = run.losses.begin_again_after
        run.losses.begin_again_after = lambda name: begins_again(name) or self._begins_again
        plan = run.reports.plan
        assert plan is not None
        self._first = self.division = Division.of_slices(plan.slices)
        self._keys = dict(enumerate(plan.keys))
        self._endpoints = dict(enumerate(plan.endpoints))
        self._phase, self._next = _Phase.NONE, self.division
        self._awaited: set[str] = set()  # servers whose answer is awaited
        self._joining: set[str] = set()  # servers that have not joined, or are not ready
        self._new: set[str] = set()  # servers that join
        self._highest = max(self.division.servers)
        self._began: Time = 0
        self._limit_s = 0.0  # for the servers that join
        self._moved = self._state_bytes = 0
        self._told: Told | None = None  # waits for the end of the present change
        run.reports.is_part = self._is_part

    @property
    def is_under_way(self) -> bool:
        """True while the state of the run is in several places."""
        return self._phase in (_Phase.TELLING, _Phase.MOVING)

    def can_survive(self, lost: Collection[str]) -> bool:
        """True if these processes can come back alone: only workers, once servers have moved."""
        has_moved = self.division.number > 0
        return not self.is_under_way and not (has_moved and set(lost) & set(self._servers))

    @property
    def is_changing(self) -> bool:
        """True while servers join or leave."""
        return self._phase is not _Phase.NONE

    @property
    def _begins_again(self) -> bool:
        """True if all processes begin again after the loss of any."""
        is_saved = self._checkpoints is not None and self._checkpoints.last > 0
        return self.is_under_way and is_saved and self._experiment.on_worker_loss == "restart"

    def scale(self, servers: int, told: Told | None = None, without: Collection[str] = ()) -> str:
        """Go on with another number of servers; return what is done, in words.

        told: called when the run goes on with them, or stays as it is. without: names of servers
        that leave in any case; others join in their places.

        Raises:
            ConfigError: if that cannot be.
        """
        present = self.division.servers
        self.require_possible(servers)
        staying = [each for each in present if server_name(each) not in without][:servers]
        if servers == len(present) == len(staying):
            said = f"the run has {plural(servers, 'server')} already"
            if told is not None:
                told(is_done=True, text=said)
            return said
        joining = [self._highest + 1 + n for n in range(servers - len(staying))]
        after = [*staying, *joining]
        self._next = divided_anew(self.division, after)
        self._highest += len(joining)
        self._new = {server_name(server) for server in joining}
        self._joining = set(self._new)
        self._phase, self._began, self._told = _Phase.STARTING, self._kernel.now, told
        start = self._processes.join_server
        for server in joining:
            assert start is not None
            try:
                self._keys[server] = start(server)
            except Exception as error:  # of the system, or of a cluster's library
                return self._drop(f"{server_name(server)} could not be started: {error}")
        self._limit_s = _LIMIT_S + self._processes.room_s
        limit = self._kernel.now + nanoseconds(self._limit_s)
        self._kernel.call_at(limit, self._give_up, self._next)
        names = ", ".join(server_name(server) for server in joining)
        left = ", ".join(server_name(server) for server in present if server not in after)
        said = f"{names} will join" if joining else ""
        if left:
            said += f"{', ' if said else ''}{left} will leave"
        self._log(f"{plural(servers, 'server')}: {said}")
        self._tell_if_ready()
        return said

    def require_possible(self, servers: int) -> None:
        """Raise ConfigError if the run cannot go on with so many servers now."""
        if why := self._why_not(servers):
            raise ConfigError(f"servers: {why}")

    def _why_not(self, servers: int) -> str:
        if not 1 <= servers <= _MOST:
            return f"must be from 1 to {_MOST}, not {servers}"
        if why := why_servers_stay(self._experiment):
            return f"the servers of this run cannot join or leave: {why}"
        if why := why_collectives(self._reports.joined):
            return why
        if self._processes.join_server is None:
            return "no server can be started: the processes of this run are started elsewhere"
        if self._phase is not _Phase.NONE:
            return "servers are joining or leaving already; try again when they have"
        if self._scaling.is_changing:
            return "workers are joining or leaving; try again when they have"
        if self._is_about_to_end:
            return "the run is about to end"
        if servers > self.division.elements:
            return f"{servers} servers cannot share {self.division.elements} parameters"
        return ""

    @property
    def _is_about_to_end(self) -> bool:
        return self._ending() is not None or self._scaling.has_finished

    def _is_part(self, server: int, elements: int) -> bool:
        parts = [each.parts[server] for each in (self.division, self._next) if server in each.parts]
        return elements in map(size_of, parts)

    # -- messages ------------------------------------------------------------------------

    def take(self, name: str, message: WireMessage) -> bool:
        """Handle a message of a server; False if it is not about moving."""
        if isinstance(message, DivisionKnown | DivisionBegun):
            kind = DivisionKnown if self._phase is _Phase.TELLING else DivisionBegun
            is_due = isinstance(message, kind) and message.number == self._next.number
            if not is_due or name not in self._awaited:
                self._listener.refuse(name, "it answers for a division that is not awaited")
                return True
            self._awaited.discard(name)
            if isinstance(message, DivisionBegun):
                self._moved += message.moved
                self._state_bytes += message.state
                self._end_if_begun()
            else:
                self._divide_if_known()
            return True
        if name not in self._joining:
            return False
        if isinstance(message, JoinRun):
            plan = self._reports.plan
            assert plan is not None
            late = msgspec.structs.replace(plan, division=self.division.number)
            self._endpoints[int(name.rpartition("-")[2])] = message.endpoint
            self._listener.send(name, late)
        elif isinstance(message, Ready):
            self._listener.send(name, self._go())
            self._joining.discard(name)
            self._tell_if_ready()
        else:
            return False
        return True

    # -- the steps -------------------------------------------------------------------------

    def _tell_if_ready(self) -> None:
        """All servers that join are there: tell all servers of the division."""
        if self._phase is not _Phase.STARTING or self._joining:
            return
        if self._is_about_to_end:
            self._drop("the run is about to end")
            return
        is_first = self._checkpoints is not None and self._checkpoints.last == 0
        if is_first or not self._replacements.is_settled:
            # The first checkpoint must not be given up, and a process that begins now would not
            # hear of the division.
            later = self._kernel.now + nanoseconds(_LOOK_AGAIN_S)
            self._kernel.call_at(later, lambda _: self._tell_if_ready())
            return
        self._phase = _Phase.TELLING
        self._servers += sorted(self._new)
        if (workers := self._scaling.for_new_servers()) is not None:
            for name in sorted(self._new):  # before they hear of generations of these workers
                self._listener.send(name, workers)
        self._new = set()
        self._moved = self._state_bytes = 0
        self._snapshots.hold()
        if self._checkpoints is not None:
            self._checkpoints.hold()
        for name in self._servers:
            self._listener.send(name, self._order())
        self._awaited = set(self._servers)

    def _order(self) -> Divide:
        servers = sorted({*self.division.servers, *self._next.servers})
        keys = [self._keys[server] for server in servers] if self._keys else []
        plan = self._reports.plan
        assert plan is not None
        self._endpoints.update(enumerate(plan.endpoints))
        return Divide(
            wire_division(self._next),
            servers,
            [self._endpoints[server] for server in servers],
            keys,
            [FIRST for server in servers],
            sorted(self._replacements.generations.items()),
        )

    def _divide_if_known(self) -> None:
        if self._awaited:
            return
        self._phase = _Phase.MOVING
        self._awaited = set(self._servers)
        for name in self._servers:
            self._listener.send(name, DivisionKnown(self._next.number))
        for name in self._workers:
            self._listener.send(name, self._order())

    def _end_if_begun(self) -> None:
        if self._awaited:
            return
        before, after = self.division, self._next
        self.division, self._phase = after, _Phase.NONE
        for server in before.servers:
            if server not in after.parts:
                self._servers.remove(server_name(server))
                self._leaves(server_name(server))
        names = {server: server_name(server) for server in after.servers}
        recut = [Recut(self._first.parts[server], after) for server in self._first.servers]

        def ordered(blocks: Mapping[int, Block]) -> list[Block]:
            values = {server: value_of(block) for server, block in blocks.items()}
            return [each.block(values) for each in recut]

        self._snapshots.follow(names, ordered)
        self._replacements.serve_by(list(self._servers), self._order())
        if self._checkpoints is not None:
            self._checkpoints.follow(after)
            self._checkpoints.release()
        took_s = seconds(self._kernel.now - self._began)
        self._observer.divided(after, self._moved, self._state_bytes, took_s)
        share = moved(before, after) / after.elements
        said = (
            f"the run goes on with {plural(len(names), 'server')}: {share:.1%} of the parameters "
            f"have moved, {self._state_bytes:,} bytes with the optimizer's state, in {took_s:.2f} s"
        )
        self._log(said)
        self._tell(is_done=True, text=said)

    def _tell(self, *, is_done: bool, text: str) -> None:
        told, self._told = self._told, None
        if told is not None:
            told(is_done=is_done, text=text)

    def _leaves(self, name: str) -> None:
        """This server has handed its part over: it ends."""
        self._listener.send(name, StopRun("its part of the parameters has moved"))
        self._processes.release(name)

    # -- losses ----------------------------------------------------------------------------

    def drop_lost(self, lost: Mapping[str, RunError]) -> Collection[str]:
        """Drop lost servers that had not joined; return their names."""
        names = self._new.intersection(lost) if self._phase is _Phase.STARTING else set()
        if names:
            self._drop("; ".join(f"{name} {how_lost(name, lost[name])}" for name in sorted(names)))
        return names

    def drop(self, name: str, how: str) -> bool:
        """Drop a server that has failed before it had joined; False if it is none."""
        if self._phase is not _Phase.STARTING or name not in self._new:
            return False
        self._drop(f"{name} {how}")
        return True

    def _give_up(self, division: Division) -> None:
        if self._phase is _Phase.STARTING and self._next is division:
            late, limit_s = ", ".join(sorted(self._joining)), self._limit_s
            what = f"{late} did not join" if late else "other processes had not come back"
            self._drop(f"{what} within {limit_s:.0f} s")

    def _drop(self, why: str) -> str:
        """Stay with the present servers; return that, in words."""
        said = f"the number of servers stays {len(self.division.parts)}: {why}"
        self._log(said)
        self._tell(is_done=False, text=said)
        self._phase, self._next = _Phase.NONE, self.division
        for name in self._new:
            self._losses.goes_without(name)
            self._processes.kill(name)
            self._processes.release(name)
        self._new, self._joining = set(), set()
        return said
