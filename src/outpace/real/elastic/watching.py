"""Has a run take more processes, or fewer, as the nodes of its cluster come and go.

The coordinator does not wait for the cluster, which may take long to answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from outpace.errors import ConfigError
from outpace.real.elastic.deciding import (
    Memory,
    Rules,
    Scale,
    Waiting,
    decide,
    fewer,
    seen,
)
from outpace.real.elastic.view import ClusterView, RunView
from outpace.real.net.sparse_log import Log
from outpace.record.event_log import EventLog
from outpace.support.units import seconds
from outpace.sync.membership.events import AskedToScale

if TYPE_CHECKING:
    from outpace.real.coordinator.coordinator import Coordinator


Look: TypeAlias = Callable[[], Future[ClusterView]]

_LONGEST: Final = 200  # characters of the reason of a failure


class Failure(NamedTuple):
    """Looks that have failed one after the other. times: how many. why: of the last one."""

    times: int
    why: str


class Looking:
    """Looks at a cluster again and again, and does not wait for it.

    Args:
        look: begins to look. It, and what it returns, may raise anything of the cluster's library;
            then nothing is known.

    Attributes:
        latest: what the last look has seen; None: it has failed, or there was none yet.
        failure: of the last look; None: it has not failed, or there was none yet.
    """

    def __init__(self, look: Look) -> None:
        self.latest: ClusterView | None = None
        self.failure: Failure | None = None
        self._look = look
        self._asked: Future[ClusterView] | None = None

    def again(self) -> None:
        """Take what was seen if the last look has come back, and begin the next one."""
        asked = self._asked
        if asked is not None and not asked.done():
            return
        self._asked = None
        try:
            if asked is not None:
                self.latest, self.failure = asked.result(), None
            self._asked = self._look()
        except Exception as error:
            times = 1 if self.failure is None else self.failure.times + 1
            self.latest, self.failure = None, Failure(times, _in_words(error))


def _in_words(error: Exception) -> str:
    """Return what an error is, on one line: errors of Ray have several."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}{f': {lines[0]}' if lines else ''}"[:_LONGEST]


_MOST_S: Final = 2.0  # between two looks
_LOOKS: Final = 4  # while nothing must have changed
_FAILURES: Final = 5  # looks that fail one after the other before that is said


@dataclass(frozen=True, slots=True)
class Elastic:
    """The rules of a run whose processes come and go, and what looks at its cluster."""

    rules: Rules
    look: Look


_ASKER: Final = "the nodes"


class NodeWatcher:
    """Asks the coordinator for changes, as `outpace scale` does.

    Args:
        log: called with a line for each change that the run accepts or refuses, with its reason,
            and if the cluster cannot be looked at.
        events: is told of each change, and why it was not done if so.
    """

    def __init__(self, elastic: Elastic, log: Log, events: EventLog) -> None:
        self._rules, self._log, self._events = elastic.rules, log, events
        self._every_s = min(_MOST_S, self._rules.settle_s / _LOOKS)
        self._looking = Looking(elastic.look)
        self._memory = Memory()
        self._waiting = self._told = Waiting()
        self._asked: Scale | None = None  # the last order that the run has accepted
        self._has_told_failure = False

    def attach(self, coordinator: Coordinator) -> None:
        """Watch for this attempt, until its kernel is closed. Forget what was refused before.

        If all begin again, the cluster may not have room for all processes any more.
        """
        self._memory = Memory()
        self._waiting = self._told = Waiting()
        self._coordinator = coordinator
        coordinator.kernel.spawn(self._keep(coordinator), "the nodes", daemon=True)

    async def _keep(self, coordinator: Coordinator) -> None:
        while True:
            self._looking.again()
            self._tell_failures()
            self._decide(coordinator)
            await coordinator.kernel.sleep(self._every_s)

    def _tell_failures(self) -> None:
        """Say once that looking at the cluster fails, and once that it works again."""
        failure, has_told = self._looking.failure, self._has_told_failure
        if failure is None and has_told:
            self._has_told_failure = False
            self._log("elastic: looking at the nodes of the cluster works again")
        elif failure is not None and failure.times >= _FAILURES and not has_told:
            self._has_told_failure = True
            self._log(
                f"elastic: looking at the nodes of the cluster has failed {failure.times} times in "
                f"a row ({failure.why}): the run keeps its workers and servers until it works "
                'again. Check with "ray status" on this machine that the cluster runs and answers'
            )

    def _decide(self, coordinator: Coordinator) -> None:
        cluster, run = self._looking.latest, coordinator.view()
        now_s = seconds(coordinator.kernel.now)
        if cluster is None:
            return
        self._require_places(coordinator, cluster, run, now_s)
        if run is not None:
            self._memory, order = decide(self._rules, self._memory, cluster, run, now_s)
            if order is not None:
                self._scale(coordinator, order)

    def _require_places(
        self, coordinator: Coordinator, cluster: ClusterView, run: RunView | None, now_s: float
    ) -> None:
        """Have the run begin again with fewer processes if the cluster has no room for all.

        Say once if it cannot continue with fewer.
        """
        names = coordinator if run is None else run
        waiting = seen(self._waiting, cluster, [*names.servers, *names.workers], now_s)
        self._waiting = waiting
        if not waiting.unplaced or now_s - waiting.since_s < self._rules.settle_s:
            return
        table, found = coordinator.state.table, None
        if table.returning if table.has_begun else coordinator.state.resume is not None:
            found = fewer(self._rules, waiting, cluster, names.workers, names.servers)
        if found is not None:
            self._say(found.why, waiting.unplaced, found.workers, found.servers)
            coordinator.survival.tell(replace(found, at=time.monotonic_ns()))
        elif waiting != self._told:
            self._told = waiting
            self._log(
                f"elastic: there is no room for {', '.join(waiting.unplaced)}, without which the "
                "run cannot continue: add a node, or free resources. The run ends if there is no "
                "room in time"
            )

    def _say(
        self, why: str, without: Sequence[str], workers: int | None, servers: int | None = None
    ) -> None:
        """Say what changes, and why. workers, servers: None: as they are."""
        asked: dict[str, Any] = {"workers": workers, "servers": servers}
        self._events.add("elastic", why=why, without=list(without), **asked)
        self._log(f"elastic: {why}")

    def _scale(self, coordinator: Coordinator, order: Scale) -> None:
        self._asked = order
        try:
            coordinator.scaling.scale(AskedToScale(order.workers, order.servers, _ASKER))
        except ConfigError as error:
            self.answer(_ASKER, str(error), is_done=False)
            self._log(f"elastic: {_not_done(order, str(error))}")
        else:
            self._say(order.why, (), order.workers, order.servers)

    def answer(self, asker: str, text: str, *, is_done: bool) -> None:
        """Take the answer to a request; no effect if another one has asked."""
        if asker == _ASKER and self._asked is not None and not is_done:
            now_s = seconds(self._coordinator.clock.now)
            self._memory = replace(self._memory, since_s=now_s, failed_s=now_s)
            self._events.add("elastic", "warning", why=_not_done(self._asked, text))


def _not_done(order: Scale, why: str) -> str:
    return f"{order.why}; not done: {why}"
