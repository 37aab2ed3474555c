"""Shuts strangers out of the connections between the members of a group.

Gloo listens for the other members, accepts every connection, and asks for no key. Once a group is
formed it needs no new connection, so the kernel drops all further attempts. Connections of
strangers from before that are shut down: each member publishes, in the store of the run, which
connections it has made, and the others belong to no member.

Where sockets have no filters (systems other than Linux), nothing is shut out.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from stat import S_ISSOCK
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

_ATTACH_FILTER: Final = 26  # SO_ATTACH_FILTER
_OPEN_FILES: Final = Path("/proc/self/fd")
_BEGINS_TO_LISTEN: Final = threading.Lock()

Address: TypeAlias = tuple[str, int]


class Connection(NamedTuple):
    """A TCP connection of this process."""

    here: Address
    there: Address


class Door:
    """The socket at which a worker listens for the other members of a group that it forms.

    Args:
        make: makes it; nothing else in this process should begin to listen meanwhile.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        with _BEGINS_TO_LISTEN:
            before = _listening()
            self.made = make()
            new = _listening() - before
        self.address = new.pop() if len(new) == 1 else None  # None: unknown
        self._before = connections()

    def close(self, store: Any, rank: int, size: int) -> int:
        """Let no stranger in any more, and shut down the connections of those that are in.

        Call it in all members once the group is formed. Where a network changes the addresses of
        members, they look like strangers; so nothing is shut down unless there are more connections
        than the members have made.

        Args:
            store: of the group.
            rank: of this member. size: number of members.

        Returns:
            The number of connections that were shut down.
        """
        if self.address is not None:
            refuse_new(self.address)
        store.set(f"connections of {rank}", msgspec.json.encode([*connections() - self._before]))
        if self.address is None:
            return 0
        of_members = set[Address]()
        for other in set(range(size)) - {rank}:
            made = msgspec.json.decode(
                store.get(f"connections of {other}"), type=list[tuple[Address, Address]]
            )
            of_members |= {here for here, there in made if there[1] == self.address[1]}
        return shut_down_others(self.address, of_members)


def connections() -> set[Connection]:
    """Return the TCP connections of this process; empty if the system does not say."""
    found = set()
    for each in _sockets():
        with contextlib.suppress(OSError):  # not connected
            found.add(Connection(each.getsockname()[:2], each.getpeername()[:2]))
    return found


def refuse_new(listening: Address) -> None:
    """Have the kernel drop attempts to connect to this address of the process."""
    for each in _sockets():
        if _is_listening(each) and each.getsockname()[:2] == listening:
            # A program of one instruction: keep 0 bytes of each packet.
            instruction = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))
            program = struct.pack("HP", 1, ctypes.addressof(instruction))
            with contextlib.suppress(OSError):  # this kernel has no filters
                each.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, program)


def shut_down_others(listening: Address, members: set[Address]) -> int:
    """Shut down connections to this address that are not from these addresses; return how many.

    Nothing is shut down if there are no more connections than addresses.
    """
    accepted = {each.there for each in connections() if each.here[1] == listening[1]}
    strangers = accepted - members if len(accepted) > len(members) else set()
    for each in _sockets():
        with contextlib.suppress(OSError):  # not connected, or gone
            if each.getpeername()[:2] in strangers and each.getsockname()[1] == listening[1]:
                each.shutdown(socket.SHUT_RDWR)
    return len(strangers)


def _listening() -> set[Address]:
    return {each.getsockname()[:2] for each in _sockets() if _is_listening(each)}


def _is_listening(each: socket.socket) -> bool:
    return each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1


def _sockets() -> Iterator[socket.socket]:
    """Yield a duplicate of each TCP socket of this process, and close it afterwards."""
    if sys.platform != "linux":
        return
    for name in os.listdir(_OPEN_FILES):
        with contextlib.suppress(OSError):  # closed in the meantime
            if not S_ISSOCK((_OPEN_FILES / name).stat().st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as each:
                if (
                    each.family in (socket.AF_INET, socket.AF_INET6)
                    and each.type == socket.SOCK_STREAM
                ):
                    yield each
