"""Has a run take more processes, or fewer, as the nodes of its cluster come and go."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from outpace.errors import ConfigError
from outpace.real.elastic.deciding import GoWithout, Memory, Order, Rules, Scale, decide
from outpace.real.elastic.looking import Look, Looking
from outpace.real.net.sparse_log import Log
from outpace.record.event_log import EventLog
from outpace.support.units import seconds

if TYPE_CHECKING:
    from outpace.real.coordinator.coordinator import Coordinator

_MOST_S: Final = 2.0  # between two looks
_LOOKS: Final = 4  # while nothing must have changed


@dataclass(frozen=True, slots=True)
class Elastic:
    """The rules of a run whose processes come and go, and what looks at its cluster."""

    rules: Rules
    look: Look


class NodeWatcher:
    """Asks the coordinator for changes, as `outpace scale` does.

    Args:
        log: called with a line for each change that is asked for, with its reason.

    Attributes:
        said: the last of these lines; empty if there is none.
    """

    def __init__(self, elastic: Elastic, log: Log, events: EventLog) -> None:
        self._rules, self._log, self._events = elastic.rules, log, events
        self._every_s = min(_MOST_S, self._rules.settle_s / _LOOKS)
        self._looking = Looking(elastic.look, self._every_s)
        self._memory = Memory()
        self.said = ""

    def attach(self, coordinator: Coordinator) -> None:
        """Ask this attempt, until its kernel is closed. What was refused before is forgotten."""
        self._memory = Memory(nodes=self._memory.nodes)
        self._looking.start()
        coordinator.kernel.spawn(self._keep(coordinator), "the nodes", daemon=True)

    def close(self) -> None:
        """Look no more."""
        self._looking.close()

    async def _keep(self, coordinator: Coordinator) -> None:
        while True:
            self._decide(coordinator)
            await coordinator.kernel.sleep(self._every_s)

    def _decide(self, coordinator: Coordinator) -> None:
        cluster, run = self._looking.latest, coordinator.view()
        if cluster is None or run is None:
            return
        now_s = seconds(coordinator.kernel.now)
        self._memory, order = decide(self._rules, self._memory, cluster, run, now_s)
        if order is not None:
            self._say(order)
            self._do(coordinator, order)

    def _say(self, order: Order) -> None:
        self.said = order.why
        asked: dict[str, Any] = {"workers": None, "servers": None}
        if isinstance(order, Scale):
            asked = {"workers": order.workers, "servers": order.servers}
        without = order.workers if isinstance(order, GoWithout) else order.without
        self._events.add("elastic", why=order.why, without=list(without), **asked)
        self._log(f"elastic: {order.why}")

    def _do(self, coordinator: Coordinator, order: Order) -> None:
        told = partial(self._told, coordinator, order)
        try:
            if isinstance(order, GoWithout):
                for name in order.workers:
                    coordinator.goes_without(name)
            else:
                coordinator.scale(order.servers, order.workers, told, order.without)
        except ConfigError as error:
            self._log(f"elastic: not possible now: {error}")
            told(is_done=False, text="")

    def _told(self, coordinator: Coordinator, order: Order, *, is_done: bool, text: str) -> None:
        """The change is done, or the run stays as it was, which it has said itself."""
        if not is_done and isinstance(order, Scale):
            now_s = seconds(coordinator.kernel.now)
            self._memory = self._memory.has_failed(order, now_s)
