"""Servers that a worker has lost, and that come back alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from outpace.kernel import Kernel
from outpace.real.net.clock import RealClock
from outpace.real.node.member import CoordinatorLink, Lost
from outpace.real.node.served_worker.connections import Connection
from outpace.real.node.served_worker.divisions import Divisions
from outpace.support.units import nanoseconds
from outpace.sync.messages import server_name

_LOST_AFTER: Final = 2.0  # leases, for the coordinator to notice the loss of a server, too


class LostServers:
    """Decides what happens when a connection to a server is lost.

    Args:
        link: to the coordinator, with the name of the worker.
        return_alone: True if a lost server comes back while the workers go on.
        is_done: returns True when the worker has reported its end.

    Attributes:
        known: the names of the servers that are lost, each with True if the coordinator knows it.
            Nothing may be sent to them.
    """

    def __init__(
        self,
        link: CoordinatorLink,
        kernel: Kernel,
        clock: RealClock,
        divisions: Divisions,
        *,
        return_alone: bool,
        is_done: Callable[[], bool],
    ) -> None:
        self._name, self._lease_s = link.name, link.session.lease_s
        self._kernel, self._clock = kernel, clock
        self._divisions, self._return_alone, self._is_done = divisions, return_alone, is_done
        self.known: dict[str, bool] = {}

    def lost(self, connection: Connection) -> None:
        """A connection has ended: wait until the coordinator says what becomes of its server.

        Raises:
            Lost: if servers do not come back alone. Raised later, in the kernel, if the
                coordinator does not notice the loss in time.
        """
        if self._is_done():  # servers may end before a worker that has reported its end
            return
        if connection.number not in self._divisions.present.parts:
            return  # it has left the run
        peer = server_name(connection.number)
        if not self._return_alone:
            raise Lost(self._name, peer)
        self.known.setdefault(peer, False)
        lost, now = (connection, connection.generation), self._kernel.now
        # Else ZeroMQ would connect again to its address, at which another process may listen.
        self._kernel.call_at(now, self._close, lost)
        # From now on: the kernel's time may be that of before a long computation.
        limit = self._clock.now + nanoseconds(_LOST_AFTER * self._lease_s)
        self._kernel.call_at(limit, self._require_known, lost)

    def coordinator_knows(self, connection: Connection) -> None:
        """The coordinator has found a server lost: send nothing to it until it is back."""
        self.known[server_name(connection.number)] = True
        connection.caller.close(0.0)

    def is_back(self, server: int) -> None:
        """There is a connection to the new process of a server."""
        self.known.pop(server_name(server), None)

    def _close(self, lost: tuple[Connection, int]) -> None:
        connection, generation = lost
        if connection.generation == generation:
            connection.caller.close(0.0)

    def _require_known(self, lost: tuple[Connection, int]) -> None:
        """End if the coordinator still has the connection that this worker has lost."""
        connection, generation = lost
        if self._is_done() or connection.generation != generation:
            return
        peer = server_name(connection.number)
        if self.known.get(peer) is False:
            raise Lost(self._name, peer)
