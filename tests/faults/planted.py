"""Bugs that can be planted: each changes one function. The search must find every one of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, Final, TypeAlias
from unittest.mock import PropertyMock, patch

from tests.faults import coordinator
from tests.faults.coordinator import Coordinator
from tests.faults.processes import Judge, ServerProcess, WorkerProcess

from outpace.sync import shard as shards
from outpace.sync.bookkeeping.pull_queue import PullQueue
from outpace.sync.bookkeeping.updates import Updates
from outpace.sync.bookkeeping.view import View
from outpace.sync.checkpoint.cuts import Cuts
from outpace.sync.checkpoint.planner import CutPlanner
from outpace.sync.membership.decide import decide
from outpace.sync.membership.events import Confirmed, Kill, ProcessesLost, Start
from outpace.sync.membership.fence import Fence
from outpace.sync.membership.table import Phase, Role, Table
from outpace.sync.messages import Lost, Rejoin
from outpace.sync.programs.cutoff import _Scheduler
from outpace.sync.programs.partial_pull import Puller
from outpace.sync.shard import Shard

MEMBERSHIP: Final = sys.modules[decide.__module__]
Planted: TypeAlias = Callable[[], AbstractContextManager[Any]]


def _restored_without(**lost: Any) -> Planted:
    """Shards are restored from states that lack something."""
    restore = Shard.restore

    def wrong(self: Shard, state: Any, now: int) -> None:
        changes = {name: made(state) for name, made in lost.items()}
        restore(self, replace(state, **changes), now)

    return lambda: patch.object(Shard, "restore", wrong)


def _instead(where: Any, name: str, made: Callable[[Any], Any]) -> Planted:
    """A function is replaced by one that is made from it."""
    return lambda: patch.object(where, name, made(getattr(where, name)))


def _dropping(kind: type, but: str = "") -> Planted:
    """Workers do not send these messages, except to one node."""
    send = WorkerProcess.send

    def wrong(self: WorkerProcess, to: str, *messages: Any) -> None:
        kept = [each for each in messages if to == but or not isinstance(each, kind)]
        if kept:
            send(self, to, *kept)

    return lambda: patch.object(WorkerProcess, "send", wrong)


def _forgets_only_at_rejoin(on_lost: Any) -> Any:
    def wrong(self: Shard, lost: Lost, now: int) -> Any:
        with patch.object(PullQueue, "take_worker", lambda *_: ()):
            return on_lost(self, lost, now)

    return wrong


def _tells_all_but_one(put: Any) -> Any:
    def wrong(self: Coordinator, judge: Judge, lost: Lost) -> None:
        if judge.name != "server-0":
            put(self, judge, lost)

    return wrong


def _ignores_comeback(take: Any) -> Any:
    def wrong(self: _Scheduler, message: Any) -> None:
        if not isinstance(message, Rejoin) and not (isinstance(message, Lost) and message.stays):
            take(self, message)

    return wrong


def _deciding(name: str, change: Callable[[Any], list[Any]]) -> Planted:
    """Each order that a function of the membership returns is replaced by these."""

    def made(function: Any) -> Any:
        def wrong(*args: Any) -> Any:
            table, orders = function(*args)
            return table, [order for each in orders for order in change(each)]

        return wrong

    return _instead(MEMBERSHIP, name, made)


def _unless_finished(lost: Any) -> Any:
    """The membership does nothing about the loss of a worker that has finished."""

    def wrong(table: Table, event: ProcessesLost, now: int) -> Any:
        (loss,) = event.losses
        if table.role(loss.name).phase is Phase.FINISHED:
            return table, []
        return lost(table, event, now)

    return wrong


def _starts_after_one_answer(confirmed: Any) -> Any:
    def wrong(table: Table, event: Confirmed, now: int) -> Any:
        known, server = table.workers[event.worker], event.server
        if known.phase is not Phase.FENCING:
            if server not in known.unconfirmed:
                return table, []
        elif server in table.server_names and event.generation == known.generation:
            reached = dict.fromkeys(table.server_names, (event.watermark, event.clock))
            known = replace(known, reached=reached, unconfirmed=frozenset([server]))
            table = table.having(known)
        return confirmed(table, event, now)

    return wrong


def _lowest_of_servers(fenced: Any) -> Any:
    def wrong(table: Table, known: Role, now: int) -> Any:
        lowest = min((max(1 + m, c) for m, c in known.reached.values()), default=0)
        table, orders = fenced(table, known, now)
        return table, [
            replace(each, first=lowest) if isinstance(each, Start) else each for each in orders
        ]

    return wrong


def _believed_to_have_ended(lost: Any) -> Any:
    def wrong(table: Table, event: ProcessesLost, now: int) -> Any:
        losses = [replace(each, has_ended=True) for each in event.losses]
        return lost(table, replace(event, losses=losses), now)

    return wrong


def _ends_without_asking(self: Coordinator) -> None:
    if len(self._done) == self._scenario.workers and not self._cluster.over.done:
        for judge in self._cluster.judges:
            if isinstance(judge, ServerProcess) and judge.alive:
                self.result[judge.shard.index] = judge.shard.state()
        self._cluster.over.set(None)


def _hears_older(self: Fence, generation: int, serial: int) -> str:
    if generation < self.generation:
        self.serial -= 1  # it is not counted
        return "due"
    return _VERDICT(self, generation, serial)


def _hears_everybody(self: Fence, generation: int, serial: int) -> str:
    return "due"


def _hears_the_last_again(self: Fence, generation: int, serial: int) -> str:
    if (generation, serial + 1) == (self.generation, self.serial):
        self.serial -= 1  # it is not counted
        return "due"
    return _VERDICT(self, generation, serial)


def _both(one: Planted, two: Planted) -> Planted:
    @contextmanager
    def planted() -> Iterator[None]:
        with one(), two():
            yield

    return planted


def _cut_anywhere(self: Cuts) -> None:
    if self._asked is not None and self._place().clock >= self._asked[1]:
        (number, _), self._asked = self._asked, None
        self._save(number)


def _lowest(worker: int, states: Any) -> int:
    return min(max(1 + state.watermarks[worker], state.clock) for state in states)


async def _begin_without_parameters(self: Puller) -> int:
    first = self._me.first_iteration
    for name in self._me.servers if first is not None else ():
        self._me.send(name, Rejoin(self._me.worker, first))
    return first or 0


def _counts_twice(restore: Any) -> Any:
    """Restore the parameters with the sums of unfinished iterations in them, and the sums."""

    def wrong(self: Updates, state: Any, now: int) -> None:
        parameters = state.parameters
        for pending in state.pending:
            for _, part in pending.parts:
                parameters = parameters - part
        restore(self, replace(state, parameters=parameters), now)

    return wrong


_VERDICT: Final = Fence.verdict

PLANTED: Final[dict[str, Planted]] = {
    "a repeated push is applied": _both(
        lambda: patch.object(shards, "is_repeated", lambda *_: False),
        lambda: patch.object(Fence, "verdict", _hears_the_last_again),
    ),
    "watermarks are not restored": _restored_without(
        watermarks=lambda state: (-1,) * len(state.watermarks)
    ),
    "the clock is restored one too high": _restored_without(clock=lambda state: state.clock + 1),
    "pending sums are not restored": _restored_without(pending=lambda state: ()),
    "pending sums are restored twice": _instead(Updates, "restore", _counts_twice),
    "the optimizer's state is not restored": _restored_without(optimizer=lambda state: {}),
    "an exact checkpoint is cut within an iteration": lambda: patch.object(
        Shard, "is_between_iterations", PropertyMock(return_value=True)
    ),
    "a shard that is past the clock saves itself all the same": lambda: patch.object(
        Cuts, "look", _cut_anywhere
    ),
    "an exact checkpoint is taken at once": _instead(
        CutPlanner,
        "begin",
        lambda begin: (
            lambda self, clock=None, later=(): [
                replace(order, clock=None) for order in begin(self, clock, later)
            ]
        ),
    ),
    "the first iteration is the lowest over the shards": lambda: patch.object(
        coordinator, "first_iteration", _lowest
    ),
    "no worker sends Rejoin": _dropping(Rejoin),
    "Rejoin goes to one server only": _dropping(Rejoin, but="server-0"),
    "Rejoin closes no gap": _instead(
        View, "rejoin", lambda rejoin: lambda self, worker, first, now: self.resume(worker)
    ),
    "a worker that is back does not pull": lambda: patch.object(
        Puller, "begin", _begin_without_parameters
    ),
    "shards ignore that a worker is lost": lambda: patch.object(Shard, "_on_lost", lambda *_: []),
    "one server is not told that a worker is lost": _instead(
        Coordinator, "_put", _tells_all_but_one
    ),
    "pulls of a lost worker are forgotten only when it is back": _instead(
        Shard, "_on_lost", _forgets_only_at_rejoin
    ),
    "a process of an old generation is heard": lambda: patch.object(Fence, "verdict", _hears_older),
    "every message is heard, also again": lambda: patch.object(Fence, "verdict", _hears_everybody),
    "the loss of a process is not noticed": lambda: patch.object(
        Coordinator, "lost", lambda *_, **__: None
    ),
    "a scheduler ignores that a worker is back": _instead(_Scheduler, "_take", _ignores_comeback),
    "the loss of a worker that has finished is told to nobody": _instead(
        MEMBERSHIP, "_lost", _unless_finished
    ),
    "a process begins when one server has answered": _instead(
        MEMBERSHIP, "_confirmed", _starts_after_one_answer
    ),
    "a process begins before the one whose place it takes has ended": _instead(
        MEMBERSHIP, "_lost", _believed_to_have_ended
    ),
    "a process begins at the lowest iteration over the servers": _instead(
        MEMBERSHIP, "_fenced", _lowest_of_servers
    ),
    "a process that stands still is not killed": _deciding(
        "_lost", lambda order: [] if isinstance(order, Kill) else [order]
    ),
    "gradients that are lost are not counted": lambda: patch.object(
        MEMBERSHIP, "_count_lost", lambda _, worker: (worker, 0)
    ),
    "a run ends without the parameters of its servers": lambda: patch.object(
        Coordinator, "_end_if_over", _ends_without_asking
    ),
}
