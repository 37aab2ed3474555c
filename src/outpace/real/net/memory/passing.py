"""Passes slots from process to process, over an abstract Unix socket (SCM_RIGHTS).

Such a socket has no file. A slot has a token, which its owner sends over the authenticated
connection. The socket gives the slot, once, to a process of the same user that shows the token.
Nothing here blocks: the clock calls these objects when their sockets have something to read.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import socket
import struct
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from time import monotonic_ns
from typing import Final

from outpace.real.net.clock import RealClock

_FULL: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS)
_PAUSE_NS: Final = 500_000_000
_MOST_WAITING: Final = 64  # connections that have not shown a token yet
_BACKLOG: Final = 1024
_CREDENTIALS: Final = struct.Struct("3i")  # pid, uid, gid
_GIVEN: Final = b"+"
_ADDRESS: Final = re.compile("outpace-[0-9a-f]{32}")
_TOKEN: Final = re.compile("[0-9a-f]{64}")
_TOKEN_BYTES: Final = 256  # no token is longer


def is_offer(address: str, token: str) -> bool:
    """True if a `Giver` has such addresses and tokens."""
    return _ADDRESS.fullmatch(address) is not None and _TOKEN.fullmatch(token) is not None


class Giver:
    """Gives slots of this process to processes that show the tokens of the slots.

    Raises:
        OSError: there is no such socket on this system.
    """

    def __init__(self, clock: RealClock) -> None:
        self._clock = clock
        self._tokens: dict[str, int] = {}  # descriptors
        self._waiting: OrderedDict[int, socket.socket] = OrderedDict()
        self._again_ns = 0  # when to accept peers again; 0: it accepts them
        self.address = f"outpace-{secrets.token_hex(16)}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            self._socket.bind(f"\0{self.address}")
            self._socket.listen(_BACKLOG)
        except OSError:
            self._socket.close()
            raise
        clock.watch(self._socket.fileno(), self._accept)
        clock.before_waits(self._go_on)

    def token_for(self, descriptor: int) -> str:
        """Return a token for the slot with this descriptor."""
        token = secrets.token_hex(32)
        self._tokens[token] = descriptor
        return token

    def withdraw(self, token: str) -> None:
        """Give no slot for this token any more."""
        self._tokens.pop(token, None)

    def forget(self, descriptor: int) -> None:
        """Give this slot to no process any more. Call it before the slot is closed."""
        self._tokens = {key: known for key, known in self._tokens.items() if known != descriptor}

    def _accept(self) -> None:
        try:
            found, _ = self._socket.accept()
        except OSError as error:
            if error.errno in _FULL:  # the peer waits on, and the socket would be ready at once
                self._clock.forget(self._socket.fileno())
                self._again_ns = monotonic_ns() + _PAUSE_NS
            return  # else the peer is gone
        found.setblocking(False)
        if _user_of(found) != os.geteuid():
            found.close()
            return
        self._waiting[found.fileno()] = found
        self._clock.watch(found.fileno(), partial(self._answer, found))
        if len(self._waiting) > _MOST_WAITING:
            self._close(next(iter(self._waiting.values())))

    def _go_on(self) -> None:
        """Accept peers again if there was no descriptor for them some time ago."""
        if self._again_ns and monotonic_ns() >= self._again_ns:
            self._again_ns = 0
            self._clock.watch(self._socket.fileno(), self._accept)

    def _answer(self, peer: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the peer is gone
            # A token is so short that it arrives at once.
            try:
                token = peer.recv(_TOKEN_BYTES).decode(errors="replace")
            except BlockingIOError:  # the clock meant a socket that had this number before
                return
            descriptor = self._tokens.pop(token, None)
            if descriptor is not None:
                socket.send_fds(peer, [_GIVEN], [descriptor])
        self._close(peer)

    def _close(self, peer: socket.socket) -> None:
        del self._waiting[peer.fileno()]
        self._clock.forget(peer.fileno())
        peer.close()

    def close(self) -> None:
        for peer in list(self._waiting.values()):
            self._close(peer)
        if not self._again_ns:
            self._clock.forget(self._socket.fileno())
        self._again_ns = 0
        self._clock.not_before_waits(self._go_on)
        self._socket.close()


class Asking:
    """Asks another process of this machine for a slot.

    Args:
        got: called with its descriptor, which then belongs to the receiver, or with an error.
    """

    def __init__(
        self, clock: RealClock, address: str, token: str, got: Callable[[int | OSError], None]
    ) -> None:
        self._clock, self._got = clock, got
        self._socket: socket.socket | None = None
        try:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            self._socket.connect(f"\0{address}")
            if _user_of(self._socket) != os.geteuid():
                raise PermissionError(errno.EPERM, "the process belongs to another user")
            self._socket.send(token.encode())
        except OSError as error:
            if self._socket is not None:
                self._socket.close()
            got(error)
            return
        clock.watch(self._socket.fileno(), self._receive)

    def _receive(self) -> None:
        found: int | OSError
        assert self._socket is not None
        try:
            _, descriptors, flags, _ = socket.recv_fds(
                self._socket, len(_GIVEN), 1, socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:  # the clock meant a socket that had this number before
            return
        except OSError as error:
            found = error
        else:
            if descriptors:
                found = descriptors[0]
            elif flags & socket.MSG_CTRUNC:  # there is no descriptor for it
                found = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            else:
                found = OSError("the process does not give it")
        self.close()
        self._got(found)

    def give_up(self) -> None:
        """Ask no more, if there is no answer yet: it is taken for an error."""
        if self.is_open:
            self.close()
            self._got(OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))

    @property
    def is_open(self) -> bool:
        """True until there is an answer."""
        return self._socket is not None and self._socket.fileno() >= 0

    def close(self) -> None:
        """Ask no more."""
        if self._socket is not None and self._socket.fileno() >= 0:
            self._clock.forget(self._socket.fileno())
            self._socket.close()


def _user_of(peer: socket.socket) -> int:
    known = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    user: int = _CREDENTIALS.unpack(known)[1]
    return user
