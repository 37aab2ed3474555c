"""Changes the number of a run's processes when nodes of its cluster are added or removed.

The coordinator does not wait for the cluster, which may take long to answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from outpace.errors import ConfigError
from outpace.real.elastic.deciding import Change, ClusterView, Memory, Rules, decide
from outpace.real.net.sparse_log import Log
from outpace.record.event_log import EventLog
from outpace.support.units import seconds
from outpace.sync.membership.events import AskedToScale, TooFewPlaces

if TYPE_CHECKING:
    from outpace.real.coordinator.coordinator import Coordinator


Look: TypeAlias = Callable[[], Future[ClusterView]]

_MOST_S: Final = 2.0  # seconds between two observations
_LOOKS: Final = 4  # seconds without a change
_ASKER: Final = "the nodes"


@dataclass(frozen=True, slots=True)
class Elastic:
    """The rules of a run whose processes come and go, and the observer of its cluster.

    look: begins an observation, and returns a function that returns its result. Both may raise any
    exception of the cluster's library.
    """

    rules: Rules
    look: Look


class NodeWatcher:
    """Requests changes from the coordinator, like `outpace scale`.

    Args:
        log: called with a line for each change that the run accepts or refuses, with its reason,
            and if the cluster cannot be observed.
        events: the log, which gets an event for each change, or why it was not made.
    """

    def __init__(self, elastic: Elastic, log: Log, events: EventLog) -> None:
        self._rules, self._look, self._log, self._events = elastic.rules, elastic.look, log, events
        self._every_s = min(_MOST_S, self._rules.settle_s / _LOOKS)
        self._looking: Future[ClusterView] | None = None
        self._cluster: ClusterView | None = None  # None: it is not known how it is
        self._has_failed = False
        self._memory = Memory()
        self._asked: Change | None = None  # the last one that the run has accepted

    def attach(self, coordinator: Coordinator) -> None:
        """Watch during this attempt, until its kernel is closed. Forget earlier refusals.

        If all begin again, the cluster may no longer have room for all processes.
        """
        self._memory = Memory()
        self._coordinator = coordinator
        coordinator.kernel.spawn(self._keep(coordinator), "the nodes", daemon=True)

    async def _keep(self, coordinator: Coordinator) -> None:
        while True:
            self._look_again()
            if self._cluster is not None:
                self._decide(coordinator, self._cluster)
            await coordinator.kernel.sleep(self._every_s)

    def _look_again(self) -> None:
        """If the last observation is complete, take its result and begin the next one."""
        looking = self._looking
        if looking is not None and not looking.done():
            return
        self._looking = None
        try:
            if looking is not None:
                self._cluster, self._has_failed = looking.result(), False
            self._looking = self._look()
        except Exception as error:
            self._cluster = None
            if not self._has_failed:
                first, *_ = str(error).strip().splitlines() or [""]
                self._log(
                    f"elastic: the cluster cannot be looked at ({type(error).__name__}: {first}): "
                    "the run keeps its workers and servers until it can"
                )
            self._has_failed = True

    def _decide(self, coordinator: Coordinator, cluster: ClusterView) -> None:
        now_s, run = seconds(coordinator.kernel.now), coordinator.view()
        self._memory, change = decide(self._rules, self._memory, cluster, run, now_s)
        if change is None:
            return
        workers, servers, why = change.workers, change.servers, change.why
        if change.without:
            self._say(change)
            at = time.monotonic_ns()
            coordinator.survival.tell(TooFewPlaces(why, workers, servers, at))
            return
        self._asked = change
        try:
            coordinator.scaling.scale(AskedToScale(workers, servers, _ASKER))
        except ConfigError as error:
            self.answer(_ASKER, str(error), is_done=False)
            self._log(f"elastic: {_not_done(change, str(error))}")
        else:
            self._say(change)

    def _say(self, change: Change) -> None:
        """Report a change and its reason."""
        self._events.add(
            "elastic",
            why=change.why,
            without=list(change.without),
            workers=change.workers,
            servers=change.servers,
        )
        self._log(f"elastic: {change.why}")

    def answer(self, asker: str, text: str, *, is_done: bool) -> None:
        """Handle the answer to a request; answers to requests of others have no effect."""
        if asker == _ASKER and self._asked is not None and not is_done:
            now_s = seconds(self._coordinator.clock.now)
            self._memory = replace(self._memory, since_s=now_s, failed_s=now_s)
            self._events.add("elastic", "warning", why=_not_done(self._asked, text))


def _not_done(change: Change, why: str) -> str:
    return f"{change.why}; not done: {why}"
