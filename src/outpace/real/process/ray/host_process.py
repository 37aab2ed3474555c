"""The process that starts, watches and ends the processes of one role, at the other end of a host.

A `Host` and this process hold the ends of a connection. Commands come from there: a number, the
name of a method and its arguments. Answers and events go back: the kind, and what belongs to it.
"""

from __future__ import annotations

import os
import pickle
import signal
from multiprocessing.connection import Connection
from typing import Any, Final, TypeAlias

from outpace.real.net.clock import RealClock
from outpace.real.process.launcher import Role
from outpace.real.process.local import LocalLauncher
from outpace.support.processes import forking

OUTPUT, ERROR, EXIT = "output", "error", "exit"
Event: TypeAlias = tuple[str, str]  # one of these, and a line or how a process ended

DONE: Final = "done"  # the kind of an answer: the number of the command, and an error or None
_LOOK_NS: Final = 1_000_000_000


def serve_in_copy(connection: Connection) -> None:
    """Serve in a process that has torch already, and of which the role's processes are forks."""
    forking.show_name("host")
    forking.fork_from_this_process()
    os.register_at_fork(after_in_child=connection.close)
    serve(connection)


def serve_beside(connection: Connection) -> None:
    """Serve in a thread of the host, whose fork server ends with this thread."""
    forking.start_fork_server()
    serve(connection)


def serve(connection: Connection) -> None:
    """Do what comes through the connection, until its other end is closed.

    First comes a tuple of the name of the role, and this machine's address for roles that listen;
    this process answers with its number.
    """
    name, address = connection.recv()
    connection.send(os.getpid())
    _HostProcess(connection, name, address).serve()


class _HostProcess:
    def __init__(self, connection: Connection, name: str, address: str) -> None:
        self._connection, self._name = connection, name
        self._clock = RealClock()
        self._launcher = LocalLauncher(self._clock, self._ended, self._printed, address)
        self._is_open = True

    def serve(self) -> None:
        self._clock.watch(self._connection.fileno(), self._carry_out)
        try:
            while self._is_open:
                self._clock(self._clock.now + _LOOK_NS)
        finally:
            for pid in self._launcher.pids.values():  # also one that is suspended
                os.kill(pid, signal.SIGKILL)

    def _carry_out(self) -> None:
        """Take one command, and do it."""
        try:
            number, method, arguments = self._connection.recv()
        except (EOFError, OSError):
            self._is_open = False
            return
        failure: Exception | None = None
        try:
            getattr(self, method)(*arguments)
        except Exception as error:
            failure = error
        self._say(DONE, (number, failure))

    # -- the commands --------------------------------------------------------------------

    def start(self, role: bytes) -> None:
        """Start a process for a pickled role. That it cannot be started is said as its end."""
        try:
            made: Role = pickle.loads(role)
            self._launcher.start(made)
        except Exception as error:
            self._say(EXIT, f"could not be started: {type(error).__name__}: {error}")

    def kill(self) -> None:
        """End the process at once; no effect if there is none."""
        self._launcher.kill(self._name)

    def suspend(self) -> None:
        self._launcher.suspend()

    def resume(self) -> None:
        self._launcher.resume()

    def stop(self, at_once: bool) -> None:
        """End the process; what it still prints is said before the answer."""
        self._launcher.stop(at_once=at_once)

    # ------------------------------------------------------------------------------------

    def _printed(self, _: str, line: str, error: bool) -> None:
        self._say(ERROR if error else OUTPUT, line)

    def _ended(self, _: str, how: str) -> None:
        self._say(EXIT, how)

    def _say(self, kind: str, what: Any) -> None:
        try:
            self._connection.send((kind, what))
        except OSError:
            self._is_open = False
