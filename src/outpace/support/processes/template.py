"""A process that has imported torch, of which other processes on this machine are copies.

Processes that know nothing of each other, as the actors of one run on one node of a cluster do,
each need children that have torch. Importing it takes 4 s of processor time and 300 MB for each
of them. So the first one starts a template, and each asks the template for a copy of it: a forked
process, which has the imported modules at once and shares their memory. Linux only.

A template listens at an address without a file, which every user of the machine can reach, so both
sides look whether the other one is of the same user. A template ends with the last of its copies.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, Final, NoReturn

_MAIN: Final = (
    "import json, sys; key, path, modules = json.loads(sys.argv[1]); sys.path[:] = path; "
    f"from {__name__} import main; main(key, modules)"
)
_READY_S: Final = 60.0  # for the imports of a template, beside those of everything else
_LOOK_S: Final = 0.02
_FIRST_S: Final = 60.0  # so long a template waits for who has started it
_BACKLOG: Final = 1024
_CREDENTIALS: Final = struct.Struct("3i")  # process, user, group


def copied(key: str, modules: Sequence[str], target: str) -> Connection:
    """Return a connection to a new copy of a template, which is started if there is none.

    The copy has the folder, the environment and the module path of this process, and calls the
    target with its end of the connection. It must end when the connection does.

    Args:
        key: names the template on this machine.
        modules: what the template imports. Modules that cannot be imported are left out.
        target: module:function.

    Raises:
        RuntimeError: there is no copy after 60 s, or another user has an address of this name.
    """
    deadline = time.monotonic() + _READY_S
    while time.monotonic() < deadline:
        connection = _connected(key)
        if connection is None:
            _start(key, modules)
            time.sleep(_LOOK_S)
            continue
        # A template that ends in this moment closes the connection.
        with contextlib.suppress(EOFError, OSError):
            connection.send((target, os.getcwd(), dict(os.environ), sys.path))
            if connection.poll(max(0.0, deadline - time.monotonic())):
                connection.recv()
                return connection
        connection.close()
        time.sleep(_LOOK_S)
    raise RuntimeError(f"no process with torch was ready within {_READY_S:g} s")


def _connected(key: str) -> Connection | None:
    """Return a connection to the template; None if there is none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as found:
        try:
            found.connect(_address(key))
        except ConnectionRefusedError:
            return None
        if (user := _user_of(found)) != os.geteuid():
            raise RuntimeError(f"user {user} of this machine has the address of template {key}")
        return Connection(found.detach())


def _start(key: str, modules: Sequence[str]) -> None:
    """Start a template. It is there when this returns, unless its start has failed."""
    command = [sys.executable, "-c", _MAIN, json.dumps([key, sys.path, list(modules)])]
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(command, stdin=subprocess.DEVNULL, check=False, timeout=_READY_S)


def _address(key: str) -> str:
    return f"\0outpace-template-{key}"


def _user_of(peer: socket.socket) -> int:
    found = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(found)[1])


# -- the template ----------------------------------------------------------------------------


def main(key: str, modules: Sequence[str]) -> None:
    """Be a template, in a new process: this one ends as soon as it can be reached."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        try:
            listener.bind(_address(key))
        except OSError:  # another process was first
            return
        listener.listen(_BACKLOG)
        # No child of its starter, nor of its session: it lasts longer than its starter may.
        if os.fork():
            os._exit(0)
        os.setsid()
        for module in modules:
            with contextlib.suppress(Exception):  # who needs it says why it fails
                importlib.import_module(module)
        gc.collect()
        gc.freeze()  # copies share the memory of the modules as long as nothing writes to it
        _Template(listener).serve()


class _Template:
    """Answers at the address with copies of this process."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._copies: set[int] = set()
        self._ended, wake = os.pipe()
        for end in (self._ended, wake):
            os.set_blocking(end, False)
        self._wake = wake

    def serve(self) -> None:
        """Make copies until the last of them has ended."""
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        first_until = time.monotonic() + _FIRST_S
        had_copies = False
        while self._copies or (not had_copies and time.monotonic() < first_until):
            ready, _, _ = select.select([self._listener.fileno(), self._ended], [], [], 1.0)
            if self._listener.fileno() in ready:
                self._copy()
                had_copies = had_copies or bool(self._copies)
            if self._ended in ready:
                os.read(self._ended, 4096)
            self._forget_ended()

    def _copy(self) -> None:
        asked, _ = self._listener.accept()
        with asked:
            if _user_of(asked) != os.geteuid():
                return
            copy = os.fork()
            if copy == 0:
                self._be_copy(Connection(asked.detach()))
            self._copies.add(copy)

    def _forget_ended(self) -> None:
        with contextlib.suppress(ChildProcessError):  # there are none
            while (ended := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                self._copies.discard(ended)

    def _be_copy(self, connection: Connection) -> NoReturn:
        """Do what a copy was asked for, and end."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._listener.close()
            os.close(self._ended)
            os.close(self._wake)
            target, folder, environment, path = connection.recv()
            sys.path[:] = path
            os.environ.clear()
            os.environ.update(environment)
            os.chdir(folder)
            connection.send("ready")
            _function(target)(connection)
            code = 0
        except (EOFError, ConnectionError):  # the process that asked for it has ended
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)


def _function(target: str) -> Callable[[Connection], Any]:
    module, _, name = target.partition(":")
    found: Callable[[Connection], Any] = getattr(importlib.import_module(module), name)
    return found
