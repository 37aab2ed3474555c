"""The connections of a listener that have brought no message of the run yet."""

from __future__ import annotations

import contextlib
import os
import random
import socket


class Newcomers:
    """Limits the number of such connections.

    ZeroMQ accepts every connection, and gives it seconds for a handshake. A connection is its file
    descriptor, which ZeroMQ owns; so it is shut down here, and ZeroMQ closes it.

    Args:
        port: at which the connections are accepted.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._connections: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self._connections)

    def __contains__(self, connection: int) -> bool:
        return connection in self._connections

    def add(self, connection: int) -> None:
        self._connections[connection] = None

    def remove(self, connection: int) -> None:
        """This connection has ended, or belongs to a peer."""
        self._connections.pop(connection, None)

    def limit(self, most: int) -> None:
        """Shut down connections until `most` are left.

        They are drawn: if the oldest were shut down, a stranger that connects often enough would
        keep a peer from ever completing its handshake, and if the newest, one that holds its
        connections.
        """
        if len(self) <= most:
            return
        for connection in random.sample(list(self._connections), len(self) - most):
            self.remove(connection)
            with contextlib.suppress(OSError):  # it has ended
                self._shut_down(connection)

    def _shut_down(self, connection: int) -> None:
        with socket.socket(fileno=os.dup(connection)) as each:
            # The number may be that of another file by now, if the connection has just ended.
            if each.getsockname()[1:2] == (self._port,):
                each.shutdown(socket.SHUT_RDWR)
