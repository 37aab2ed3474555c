"""Servers that are lost and come back alone from the last checkpoint, while the workers go on.

`sync.membership` decides what follows from what has happened; here is what the coordinator does:

1. It hears only a process of the next generation under the server's name, ends the old process,
   and tells the workers that the server is lost. The checkpoint under way is given up.
2. When the old process has ended it starts a new one, which begins as at the last checkpoint.
3. The new process is told of every worker (`ReplaceWorker`), so it hears no process of before.
4. The workers are told to connect to it. Each says with which iteration it goes on there.

The next checkpoint is taken when all workers have said so: then all that is lost is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from enum import Enum, auto

import msgspec

from outpace.errors import RunError
from outpace.real.coordinator.evaluation.snapshots import Snapshots
from outpace.real.coordinator.policy_changes import PolicyChanges
from outpace.real.coordinator.recovery.losses import GroupLost
from outpace.real.coordinator.recovery.run_around import RunAround
from outpace.real.coordinator.saving.base import Checkpoints
from outpace.real.net.membership_messages import (
    ServerBack,
    ServerLost,
    ServerReturned,
    WorkerRejoined,
)
from outpace.real.net.messages import JoinRun, Ready, StateLoaded
from outpace.real.net.transport import FIRST
from outpace.sync.membership import Lacks, Membership, Order
from outpace.sync.messages import WireMessage, server_name, worker_name


class _Phase(Enum):
    """How far a server is on its way back."""

    ENDING = auto()  # its old process has not ended
    STARTING = auto()
    TOLD = auto()  # it runs, and is told of the workers


class ReturningServers:
    """The servers of a run that come back alone.

    Args:
        members: is told of them, and gives the orders that `do` follows.
        changes: the changes of policies by code.
        do: follows orders of the membership.
        complete: called when all servers are back, and the workers go on with them.
    """

    def __init__(
        self,
        run: RunAround,
        members: Membership,
        checkpoints: Checkpoints,
        snapshots: Snapshots,
        changes: PolicyChanges,
        do: Callable[[Sequence[Order]], None],
        complete: Callable[[], None],
    ) -> None:
        experiment = run.experiment
        self._numbers = {server_name(server): server for server in range(experiment.servers)}
        self._workers = [worker_name(worker) for worker in range(experiment.workers)]
        self._members, self._kernel, self._listener = members, run.kernel, run.listener
        self._losses, self._reports, self._processes = run.losses, run.reports, run.processes
        self._checkpoints, self._snapshots, self._changes = checkpoints, snapshots, changes
        self._observer, self._log, self._go = run.observer, run.log, run.go
        self._offer = run.offer
        self._do, self._complete = do, complete
        self._phases: dict[str, _Phase] = {}  # of the servers that are not back
        self._generations = dict.fromkeys(self._numbers, FIRST)
        self._back: dict[str, ServerBack] = {}  # what each new process has begun with
        self._is_over = True  # all servers are there, and the workers go on with them
        self._since_all: set[str] = set()  # lost since all were there
        self._not_before = 0  # number of a checkpoint from which servers may come back

    @property
    def is_over(self) -> bool:
        """True if all servers are there, and the workers go on with those that came back."""
        return self._is_over

    # -- losses ------------------------------------------------------------------------

    def can_return(self, servers: Collection[str]) -> bool:
        """True if these lost servers come back alone; else all processes begin again."""
        checkpoints = self._checkpoints
        if checkpoints.last == 0 or self._processes.start_server is None:
            return False
        if checkpoints.last < self._not_before:
            return False  # it would have the state that a script has replaced since
        # A server that ends itself would do so again. A worker that has ended because it could not
        # reach a server was not told in time that the server comes back.
        losses = self._losses
        return not any(losses.has_exited(name) or losses.reporters(name) for name in servers)

    def lost(self, name: str, error: RunError) -> None:
        """A server is lost, and comes back. Raises RunError if it was lost too often."""
        self._processes.count_server_loss(error, name)
        server, losses = self._numbers[name], self._losses
        self._log(
            f"{error}; it comes back from checkpoint {self._checkpoints.last}, "
            "and the workers go on"
        )
        has_ended = losses.has_ended(name)
        losses.comes_back(name)
        losses.away.add(name)
        self._generations[name] += 1
        generation = self._generations[name]
        self._listener.replace(name, generation)
        self._reports.server_begins_again(name, generation)
        self._checkpoints.hold()
        self._snapshots.forget(server)
        self._is_over = False
        self._since_all.add(name)
        self._members.server_lost(name, self._kernel.now)
        for worker in self._workers:
            self._listener.send(worker, ServerLost(server))
        self._phases[name] = _Phase.ENDING
        if has_ended:
            # Later, so that its loss is noted before.
            self._kernel.call_at(self._kernel.now, self._start, (name, generation))
        else:
            self._processes.kill(name)

    def process_ended(self, name: str) -> bool:
        """The process of this name has ended: True if it is one whose place a new one takes."""
        if self._phases.get(name) is not _Phase.ENDING:
            return False
        self._start((name, self._generations[name]))
        return True

    def _start(self, lost: tuple[str, int]) -> None:
        name, generation = lost
        if self._phases.get(name) is not _Phase.ENDING or generation != self._generations[name]:
            return
        assert self._processes.start_server is not None
        server, self._phases[name] = self._numbers[name], _Phase.STARTING
        self._observer.server_restarted(server, generation, self._checkpoints.last)
        self._processes.start_server(server, generation)

    # -- messages ------------------------------------------------------------------------

    def fetches(self, name: str) -> None:
        """A process has been sent a piece of the checkpoint with which it goes on."""
        if self._phases.get(name) is _Phase.STARTING:
            self._members.server_fetches(name, self._kernel.now)

    def take(self, name: str, message: WireMessage) -> bool:
        """Handle a message of a process; False if it is not about a server that comes back."""
        phase = self._phases.get(name)
        if isinstance(message, ServerBack):
            if phase is not _Phase.STARTING or name not in self._reports.joined:
                self._listener.refuse(name, "it is no server that comes back")
                return True
            self._phases[name], self._back[name] = _Phase.TOLD, message
            self._do(self._members.server_back(name, self._kernel.now))
        elif isinstance(message, WorkerRejoined):
            if name not in self._back or message.worker >= len(self._workers):
                self._listener.refuse(name, "no worker rejoins it")
                return True
            self._do(self._members.rejoined(name, message.worker, message.first))
        elif isinstance(message, StateLoaded):
            self._has_loaded(name)
        elif phase is _Phase.STARTING and isinstance(message, JoinRun):
            assert self._reports.plan is not None
            self._listener.send(name, self._reports.plan)
            self._offer(name)
            if (optimizer := self._reports.optimizers.get(name)) is not None:
                self._listener.send(name, optimizer)
        elif phase is _Phase.STARTING and isinstance(message, Ready):
            self._listener.send(name, self._go())
            self._changes.tell_again(self._numbers[name])
        else:
            return False
        return True

    def _has_loaded(self, name: str) -> None:
        """A script loads another state into the servers' optimizers, which the checkpoints lack.

        Raises:
            GroupLost: if a server is away.
        """
        # The one after the newest may be taken before the state has arrived.
        self._not_before = self._checkpoints.newest + 2
        if not self._is_over:
            who = ", ".join(sorted(self._since_all))
            raise GroupLost(
                f"the script of {name} loads a state of its optimizer while {who} comes back",
                sorted(self._since_all),
            )

    # -- orders of the membership -----------------------------------------------------------

    def reconnect(self, name: str) -> None:
        """The new process of a server knows of all workers: have them connect to it."""
        server, generation, back = self._numbers[name], self._generations[name], self._back[name]
        assert self._phases[name] is _Phase.TOLD
        del self._phases[name]
        self._losses.away.discard(name)
        endpoint = self._reports.joined[name].endpoint
        self._add_to_plan(server, endpoint, generation)
        returned = ServerReturned(server, endpoint, generation, back.version)
        for worker in self._workers:
            self._listener.send(worker, returned)
        self._snapshots.ask_again(server)
        self._observer.server_back(server, back.clock)

    def _add_to_plan(self, server: int, endpoint: str, generation: int) -> None:
        """Have workers that join from now on connect to the new process of a server."""
        plan = self._reports.plan
        assert plan is not None
        endpoints = list(plan.endpoints)
        generations = list(plan.generations) or [FIRST] * len(endpoints)
        endpoints[server], generations[server] = endpoint, generation
        self._reports.plan = msgspec.structs.replace(
            plan, endpoints=endpoints, generations=generations
        )

    def lacks(self, lacks: Lacks) -> None:
        """It is known what a server that came back lacks of a worker."""
        self._observer.server_lacks(self._numbers[lacks.server], lacks)

    def look(self) -> None:
        """Go on with checkpoints if all servers are back and the workers go on with them."""
        if self._is_over or not self._members.has_all_servers:
            return
        self._is_over = True
        self._since_all.clear()
        self._checkpoints.release()
        self._complete()
