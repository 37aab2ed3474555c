"""The parent of one role's processes on a node of a cluster: a local launcher, called from far.

A cluster manager runs a `Host` as an actor. The methods are called from its threads, and the
processes are started, watched and ended by one thread of the host, which lasts as long as the host:
the fork server dies with the thread that has started it, and the processes die with the fork
server.
"""

from __future__ import annotations

import os
import pickle
import platform
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from outpace.real.net.clock import RealClock
from outpace.real.process.launcher import Role
from outpace.real.process.local import LocalLauncher
from outpace.support.processes import forking
from outpace.support.version import __version__

OUTPUT, ERROR, EXIT = "output", "error", "exit"
Event: TypeAlias = tuple[str, str]  # one of these, and a line or how a process ended

_ANSWER_S: Final = 30.0  # for the thread of the host; starting the fork server takes longest
_MOST_EVENTS: Final = 10_000  # that nothing has fetched; then the processes must wait
_LOOK_NS: Final = 1_000_000_000


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
    """

    def __init__(self, name: str, address: str, folder: str, modules: Sequence[str]) -> None:
        if Path(folder).is_dir():
            os.chdir(folder)
        self._name = name
        self._events: list[Event] = []
        self._changed = threading.Condition()
        self._stops = 0  # how often the processes were stopped
        self._failure: BaseException | None = None
        self._commands = deque[tuple[Callable[[], None], Future[None]]]()
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._woken, False)
        self._clock = RealClock()
        self._launcher = LocalLauncher(self._clock, self._ended, self._printed, address)
        for module in modules:
            forking.preload(module)
        threading.Thread(target=self._work, name=f"host of {name}", daemon=True).start()
        self._order(forking.start_fork_server)

    # -- called from far -----------------------------------------------------------------

    def survey(self, paths: Sequence[str]) -> Survey:
        """Return what this host finds on its node."""
        return survey_here(paths)

    def start(self, role: bytes) -> None:
        """Start a process for a pickled role. That it cannot be started is said as its end."""
        self._do(lambda: self._start(role))

    def kill(self) -> None:
        """End the process at once; no effect if there is none."""
        self._do(lambda: self._launcher.kill(self._name))

    def suspend(self) -> None:
        self._do(self._launcher.suspend)

    def resume(self) -> None:
        self._do(self._launcher.resume)

    def stop(self, at_once: bool) -> list[Event]:
        """End the process; return what `events` has not returned yet."""
        self._do(lambda: self._launcher.stop(at_once=at_once))
        with self._changed:
            self._stops += 1
            taken, self._events = self._events, []
            self._changed.notify_all()
        return taken

    def events(self, stops: int, wait_s: float) -> list[Event]:
        """Return what has happened since the last call; wait for it if nothing has.

        Args:
            stops: number of calls of `stop` before; after the next one, nothing is returned.

        Raises:
            RuntimeError: the thread of this host has failed; its processes have ended.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._events or self._stops != stops or self._failure is not None, wait_s
            )
            if self._stops != stops:
                return []
            if self._failure is not None and not self._events:
                raise RuntimeError(f"the host of {self._name} failed: {self._failure!r}")
            taken, self._events = self._events, []
            self._changed.notify_all()
        return taken

    # -- the thread of this host ---------------------------------------------------------

    def _work(self) -> None:
        clock = self._clock
        clock.watch(self._woken, self._carry_out)
        try:
            while True:
                clock(clock.now + _LOOK_NS)
        except BaseException as error:
            with self._changed:
                self._failure = error
                self._changed.notify_all()
            raise

    def _order(self, action: Callable[[], Any]) -> Future[None]:
        done: Future[None] = Future()
        self._commands.append((action, done))
        os.write(self._wake, b"x")
        return done

    def _do(self, action: Callable[[], Any]) -> None:
        self._order(action).result(_ANSWER_S)

    def _carry_out(self) -> None:
        os.read(self._woken, 4096)
        while self._commands:
            action, done = self._commands.popleft()
            try:
                action()
            except Exception as error:
                done.set_exception(error)
            else:
                done.set_result(None)

    def _start(self, role: bytes) -> None:
        try:
            made: Role = pickle.loads(role)
            self._launcher.start(made)
        except Exception as error:
            self._add(EXIT, f"could not be started: {type(error).__name__}: {error}")

    def _printed(self, _: str, line: str, error: bool) -> None:
        self._add(ERROR if error else OUTPUT, line)

    def _ended(self, _: str, how: str) -> None:
        self._add(EXIT, how)

    def _add(self, kind: str, text: str) -> None:
        with self._changed:
            # A process that prints more than is fetched must wait, but not for ever.
            self._changed.wait_for(lambda: len(self._events) < _MOST_EVENTS, _ANSWER_S / 2)
            self._events.append((kind, text))
            self._changed.notify_all()
