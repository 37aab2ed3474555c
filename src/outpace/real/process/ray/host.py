"""The parent of one role's processes on a node of a cluster: a local launcher, called from far.

A cluster manager runs a `Host` as an actor. The methods are called from its threads. What they
order is done by another process, the host process, which is single-threaded, has torch already and
forks the role's processes: they die with it, and it ends with the actor. All hosts of a run on a
node share the memory of the modules (`support.processes.template`).
"""

from __future__ import annotations

import itertools
import os
import platform
import socket
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from outpace.real.process.ray.host_process import DONE, EXIT, Event, serve_beside, serve_in_copy
from outpace.support.processes import forking
from outpace.support.processes.modules import MODULES
from outpace.support.processes.template import copied
from outpace.support.version import __version__

_ANSWER_S: Final = 90.0  # for the host process; its imports take longest
_MOST_EVENTS: Final = 10_000  # that nothing has fetched; then the processes must wait
_WAIT_S: Final = 15.0  # so long at most
_SERVE: Final = f"{serve_in_copy.__module__}:{serve_in_copy.__name__}"


@dataclass(frozen=True, slots=True)
class Survey:
    """What a host finds on its node. missing: those of the wanted paths that are not there."""

    outpace: str
    python: str
    process: int
    missing: tuple[str, ...]


def survey_here(paths: Sequence[str] = ()) -> Survey:
    """Return what this process finds on its machine."""
    # `Path.exists` raises PermissionError for a path in a folder that cannot be looked into.
    missing = tuple(path for path in paths if not os.path.exists(path))
    return Survey(__version__, platform.python_version(), os.getpid(), missing)


class Host:
    """Starts the processes of one role, one after the other, and says what becomes of them.

    Args:
        name: of the role.
        address: of this node, for roles that listen.
        folder: working folder of the processes, if it exists on this node.
        modules: are imported before any process is forked.
        key: names the template that the hosts of this run on this node share; None: the processes
            are forked by a fork server of this process, as where there is no Linux.
    """

    def __init__(
        self, name: str, address: str, folder: str, modules: Sequence[str], key: str | None = None
    ) -> None:
        if Path(folder).is_dir():
            os.chdir(folder)
        self._name, self._address = name, address
        self._modules = list(modules)
        self._key = key if sys.platform == "linux" else None
        self._events: list[Event] = []
        self._changed = threading.Condition()
        self._stops = 0  # how often the processes were stopped
        self._has_process = False  # which was started, and whose end nothing has told
        self._failure: BaseException | None = None
        self._connection: Connection | None = None  # with the host process, once it is there
        self._is_ready = threading.Event()
        self._sending = threading.Lock()
        self._numbers = itertools.count()
        self._orders: dict[int, Future[None]] = {}
        threading.Thread(target=self._work, name=f"host of {name}", daemon=True).start()

    # -- called from far -----------------------------------------------------------------

    def survey(self, paths: Sequence[str]) -> Survey:
        """Return what this host finds on its node."""
        return survey_here(paths)

    def start(self, role: bytes) -> None:
        """Start a process for a pickled role. That it cannot be started is said as its end."""
        self._has_process = True
        self._do("start", role)

    def kill(self) -> None:
        """End the process at once; no effect if there is none."""
        self._do("kill")

    def suspend(self) -> None:
        self._do("suspend")

    def resume(self) -> None:
        self._do("resume")

    def stop(self, at_once: bool) -> list[Event]:
        """End the process; return what `events` has not returned yet."""
        self._do("stop", at_once)
        with self._changed:
            self._has_process = False
            self._stops += 1
            taken, self._events = self._events, []
            self._changed.notify_all()
        return taken

    def events(self, stops: int, wait_s: float) -> list[Event]:
        """Return what has happened since the last call; wait for it if nothing has.

        Args:
            stops: number of calls of `stop` before; after the next one, nothing is returned.

        Raises:
            RuntimeError: there can be no host process.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._events or self._stops != stops or self._failure is not None, wait_s
            )
            if self._stops != stops:
                return []
            if self._failure is not None and not self._events:
                raise self._failed()
            taken, self._events = self._events, []
            self._changed.notify_all()
        return taken

    # -- the host process ----------------------------------------------------------------

    def _do(self, method: str, *arguments: Any) -> None:
        """Have the host process do this, and wait until it is done. Raises RuntimeError."""
        self._is_ready.wait(_ANSWER_S)
        done: Future[None] = Future()
        with self._sending:
            if self._connection is None:
                raise self._failed()
            number = next(self._numbers)
            self._orders[number] = done
            try:
                self._connection.send((number, method, arguments))
            except OSError:
                raise self._failed() from None
        done.result(_ANSWER_S)

    def _failed(self) -> RuntimeError:
        why = "its process has ended" if self._failure is None else repr(self._failure)
        return RuntimeError(f"the host of {self._name} failed: {why}")

    def _work(self) -> None:
        """Start the host process, and take what it says. In a thread of its own."""
        try:
            while True:
                with self._started() as connection:
                    self._take_all(connection)
        except BaseException as error:
            with self._sending, self._changed:
                self._failure = error
                self._forget_orders()
                self._changed.notify_all()
            self._is_ready.set()

    def _take_all(self, connection: Connection) -> None:
        """Take what a new host process says until it ends."""
        connection.send((self._name, self._address))
        pid = connection.recv()
        self._connection = connection
        self._is_ready.set()
        while True:
            try:
                kind, what = connection.recv()
            except (EOFError, ConnectionError):
                break
            if kind == DONE:
                number, failure = what
                order = self._orders.pop(number)
                order.set_result(None) if failure is None else order.set_exception(failure)
            else:
                self._add(kind, what)
        with self._sending:
            self._is_ready.clear()
            self._connection = None
            self._forget_orders()
        if self._has_process:
            self._add(EXIT, forking.ended_with_fork_server(pid))

    def _forget_orders(self) -> None:
        for order in self._orders.values():
            order.set_exception(self._failed())
        self._orders.clear()

    def _started(self) -> Connection:
        """Return a connection to a new host process."""
        if self._key is not None:
            return copied(self._key, [*MODULES, *self._modules], _SERVE)
        for module in self._modules:
            forking.preload(module)
        ours, theirs = socket.socketpair()
        end = Connection(theirs.detach())
        threading.Thread(target=serve_beside, args=(end,), name="processes", daemon=True).start()
        return Connection(ours.detach())

    def _add(self, kind: str, text: str) -> None:
        with self._changed:
            # A process that prints more than is fetched must wait, but not for ever.
            self._changed.wait_for(lambda: len(self._events) < _MOST_EVENTS, _WAIT_S)
            self._events.append((kind, text))
            if kind == EXIT:
                self._has_process = False
            self._changed.notify_all()
