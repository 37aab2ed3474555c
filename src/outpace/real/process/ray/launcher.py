"""A launcher whose processes are children of hosts on the nodes of a cluster."""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import wait
from typing import TYPE_CHECKING, Final, TypeAlias

from outpace.engine.output import OnOutput
from outpace.real.net.clock import RealClock
from outpace.real.process.launcher import Launcher, OnExit, Role
from outpace.real.process.ray.host import ERROR, EXIT, OUTPUT, STOPPED, Event

if TYPE_CHECKING:
    from outpace.real.process.ray.cluster import RayCluster, RayHost

_ANSWER_S: Final = 5.0  # for a host; one that does not answer is ended
_STOP_S: Final = 8.0  # the same, when it ends its process: that may take 3 s


Hear: TypeAlias = "Callable[[RayHost, list[Event] | BaseException], None]"
"""Takes events of a host, or the error with which it is lost."""


class HostsLauncher(Launcher):
    """A launcher whose processes are started by hosts elsewhere.

    Threads of the cluster's library put what the hosts tell into a queue; the clock is woken, and
    its thread takes it from there.
    """

    def __init__(
        self,
        hosts: RayCluster,
        clock: RealClock,
        on_exit: OnExit,
        on_output: OnOutput | None = None,
    ) -> None:
        self._hosts, self._clock = hosts, clock
        self.nodes, self.room_s = hosts.nodes, hosts.room_s
        self._on_exit, self._on_output = on_exit, on_output or (lambda *_: None)
        self._running: dict[str, RayHost] = {}
        self._leaving: set[str] = set()  # roles that give back their places when they have ended
        self._arrived: deque[tuple[RayHost, list[Event] | BaseException]] = deque()
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._wake, False)
        clock.watch(self._woken, self._take)
        self._is_open = True
        self._waking = threading.Lock()  # of the pipe, which other threads write to

    def reserve(self, names: Sequence[str]) -> None:
        self._hosts.reserve(names)

    def no_room(self, names: Sequence[str]) -> str:
        found: list[str] = []

        def ask() -> None:
            with contextlib.suppress(Exception):  # the cluster does not answer
                found.append(self._hosts.no_room(names))

        asking = threading.Thread(target=ask, name="room", daemon=True)
        asking.start()
        asking.join(_ANSWER_S)
        return found[0] if found else ""

    def start(self, role: Role) -> None:
        is_leaving = role.name in self._leaving
        self._leaving.discard(role.name)
        before = self._running.pop(role.name, None)
        if before is not None:  # its process should have ended, and that was not told
            self._give_up(before)
            if is_leaving:  # it may never have had room: this one asks for it anew
                self._hosts.release(role.name)
        host = self._running[role.name] = self._hosts.host(role.name)
        host.listen(self._has_come)
        host.order("start", pickle.dumps(role))

    def is_ending(self, name: str) -> bool:
        host = self._running.get(name)
        return any(who is host and _has_end(come) for who, come in list(self._arrived))

    def kill(self, name: str) -> None:
        host = self._running.get(name)
        if host is not None:
            answer = host.order("kill")
            # A host that does not answer is ended, and lost.
            after = threading.Timer(_ANSWER_S, lambda: None if answer.done() else host.end())
            after.daemon = True
            after.start()

    def release(self, name: str) -> None:
        if name in self._running:
            self._leaving.add(name)
        else:
            self._hosts.release(name)

    def keep_only(self, names: Collection[str]) -> None:
        self._hosts.keep_only(names)

    def suspend(self) -> None:
        wait([host.order("suspend") for host in self._running.values()], _ANSWER_S)

    def resume(self) -> None:
        wait([host.order("resume") for host in self._running.values()], _ANSWER_S)

    def stop(self, *, at_once: bool = True) -> None:
        if not self._is_open:
            return
        stopping = set(self._running.values())
        for host in stopping:
            host.order("stop", at_once)
        deadline = time.monotonic() + _STOP_S
        while stopping and (left_s := deadline - time.monotonic()) > 0:
            select.select([self._woken], [], [], left_s)
            for host, come in self._taken():
                if isinstance(come, BaseException):
                    self._give_up(host)
                    stopping.discard(host)
                elif self._running.get(host.name) is host:
                    self._tell_output(host, come)
                    stopping -= {host} if any(kind == STOPPED for kind, _ in come) else set()
        self._clock.forget(self._woken)
        with self._waking:
            self._is_open = False
            os.close(self._woken)
            os.close(self._wake)
        for host in stopping:
            self._give_up(host)
        self._running.clear()

    # ----------------------------------------------------------------------------------

    def _give_up(self, host: RayHost) -> None:
        host.end()
        self._hosts.lost(host)

    def _has_come(self, host: RayHost, come: list[Event] | BaseException) -> None:
        """In another thread."""
        self._arrived.append((host, come))
        with self._waking, contextlib.suppress(BlockingIOError):  # then it is awake
            if self._is_open:
                os.write(self._wake, b"x")

    def _taken(self) -> Iterator[tuple[RayHost, list[Event] | BaseException]]:
        """Yield what has arrived."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._woken, 4096)
        while self._arrived:
            yield self._arrived.popleft()

    def _take(self) -> None:
        for host, come in self._taken():
            if self._running.get(host.name) is host:
                self._tell(host, come)

    def _tell(self, host: RayHost, come: list[Event] | BaseException) -> None:
        how = ""
        if isinstance(come, BaseException):
            self._hosts.lost(host)
            how = host.why_lost(come)
        else:
            self._tell_output(host, come)
            how = next((text for kind, text in come if kind == EXIT), "")
        if not how:
            return
        del self._running[host.name]
        if host.name in self._leaving:
            self._leaving.remove(host.name)
            self._hosts.release(host.name)
        self._on_exit(host.name, how)

    def _tell_output(self, host: RayHost, events: Sequence[Event]) -> None:
        for kind, text in events:
            if kind in (OUTPUT, ERROR):
                self._on_output(host.name, text, kind == ERROR)


def _has_end(come: list[Event] | BaseException) -> bool:
    return isinstance(come, BaseException) or any(kind == EXIT for kind, _ in come)
