"""Servers of a simulated run that come back alone from the last checkpoint; the workers go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outpace.engine.interruptions import Interruptions
from outpace.simulation.faults.costs import Costs
from outpace.simulation.faults.saving import Kept
from outpace.support.units import Time
from outpace.sync.messages import Restarted, server_name

if TYPE_CHECKING:
    from outpace.simulation.faults.run import FailingSimulation


class LoneServers:
    """The servers of a run that are lost, and when.

    Args:
        restart: until a server is ready again (ns).

    Attributes:
        away: names of those that workers cannot reach.
    """

    def __init__(
        self,
        run: FailingSimulation,
        restart: Time,
        costs: Costs,
        interruptions: Interruptions,
    ) -> None:
        self._run, self._kernel, self._restart = run, run.kernel, restart
        self._costs, self._interruptions = costs, interruptions
        self.away: set[str] = set()
        self._times = 0  # that all processes have begun again
        self._versions: dict[int, int] = {}  # of the states from which they come back
        self._lost: dict[int, tuple[Time, Time]] = {}  # when they failed, and when that was known

    def lost(self, server: int, failed: Time, kept: Kept) -> None:
        """A server is lost, since `failed` (ns); it comes back with what is kept of it."""
        now, state = self._kernel.now, kept.states[server]
        name = server_name(server)
        self.away.add(name)
        self._versions[server], self._lost[server] = state.version, (failed, now)
        self._interruptions.server_lost(server, failed, kept.number, state.clock)
        self._run.cut_off(server, state)
        ready = max(now + self._restart, self._run.network.obstacles.until(name))
        self._kernel.call_at(ready, self._bring_back, (server, self._times))

    def _bring_back(self, due: tuple[int, int]) -> None:
        server, times = due
        if times == self._times:
            self._run.bring_back(server)

    def forget(self) -> None:
        """All processes begin again."""
        self._times += 1
        self.away.clear()

    def reconnect(self, server: int) -> None:
        """The server is back and knows of all workers: tell them."""
        self.away.discard(server_name(server))
        self._interruptions.server_back(server, self._kernel.now)
        self._run.tell_workers(Restarted(server, self._versions[server]))

    def heard_again(self, server: int, began: Time) -> None:
        """A worker knows that a server is back; it has waited for a message since `began` (ns)."""
        failed, known = self._lost[server]
        self._costs.add("detection", known - max(began, failed))
        self._costs.add("restart", self._kernel.now - max(began, known))
