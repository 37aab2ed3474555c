"""A launcher whose processes are children of hosts on the nodes of a cluster."""

from __future__ import annotations

import contextlib
import pickle
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from outpace.engine.output import OnOutput
from outpace.real.net.clock import RealClock
from outpace.real.net.waker import Waker
from outpace.real.process.launcher import Launcher, OnExit, Role
from outpace.real.process.ray.host import ERROR, EXIT, OUTPUT, STOPPED, Event

if TYPE_CHECKING:
    from outpace.real.process.ray.actor import RayHost
    from outpace.real.process.ray.cluster import RayCluster

_ANSWER_S: Final = 5.0  # for a host; one that does not answer is ended
_STOP_S: Final = 8.0  # the same, when it ends its process: that may take 3 s
_LOOK_S: Final = 0.05

Hear: TypeAlias = "Callable[[RayHost, list[Event] | BaseException], None]"
"""Takes events of a host, or the error with which it is lost."""


class HostsLauncher(Launcher):
    """A launcher whose processes are started by hosts elsewhere.

    Threads of the cluster's library tell what happens, and the clock's thread takes it.
    """

    def __init__(
        self,
        hosts: RayCluster,
        clock: RealClock,
        on_exit: OnExit,
        on_output: OnOutput,
    ) -> None:
        self._hosts = hosts
        self.nodes, self.room_s = hosts.nodes, hosts.room_s
        self._on_exit, self._on_output = on_exit, on_output
        self._running: dict[str, RayHost] = {}
        self._ending: set[RayHost] = set()  # whose process has ended, which is not told yet
        self._leaving: set[str] = set()  # roles that give back their places when they have ended
        self._is_open = True  # until `stop`
        self._stopping: set[RayHost] = set()  # hosts that have not stopped yet
        self._waker = Waker(clock)

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
            self._hosts.lost(before)
            if is_leaving:  # it may never have had room: this one asks for it anew
                self._hosts.release(role.name)
        host = self._running[role.name] = self._hosts.host(role.name)
        self._order(host, "start", pickle.dumps(role))

    def is_ending(self, name: str) -> bool:
        return self._running.get(name) in self._ending

    def kill(self, name: str) -> None:
        host = self._running.get(name)
        if host is not None:
            answer = self._order(host, "kill")
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
        self._order_all("suspend")

    def resume(self) -> None:
        self._order_all("resume")

    def stop(self, *, at_once: bool = True) -> None:
        if not self._is_open:
            return
        self._is_open, self._stopping = False, set(self._running.values())
        for host in self._stopping:
            self._order(host, "stop", at_once)
        deadline = time.monotonic() + _STOP_S
        while self._stopping and (left_s := deadline - time.monotonic()) > 0:
            self._waker.run_within(left_s)
        self._waker.stop()
        self._waker.close()
        for host in self._stopping:
            self._hosts.lost(host)
        self._running.clear()

    # ----------------------------------------------------------------------------------

    def _order(self, host: RayHost, method: str, *arguments: Any) -> Future[Any]:
        """Give an order to a host, which carries it out while it is listened to."""
        host.listen(self._has_come)
        return host.order(method, *arguments)

    def _order_all(self, method: str) -> None:
        """Give an order to all hosts, and wait until they have carried it out."""
        orders = [self._order(host, method) for host in self._running.values()]
        until = time.monotonic() + _ANSWER_S
        while wait(orders, _LOOK_S).not_done and time.monotonic() < until:
            for host in self._running.values():  # what comes meanwhile is taken later
                host.listen(self._has_come)

    def _has_come(self, host: RayHost, come: list[Event] | BaseException) -> None:
        """In another thread."""
        if _has_end(come):
            self._ending.add(host)
        self._waker.call(partial(self._take, host, come))

    def _take(self, host: RayHost, come: list[Event] | BaseException) -> None:
        if _has_end(come):
            self._ending.discard(host)
        if self._running.get(host.name) is not host:
            return
        how, has_stopped = "", False
        if isinstance(come, BaseException):
            self._hosts.lost(host)
            how, has_stopped = host.why_lost(come), True
        else:
            self._tell_output(host, come)
            how = next((text for kind, text in come if kind == EXIT), "")
            has_stopped = any(kind == STOPPED for kind, _ in come)
        if has_stopped and not self._is_open:
            self._stopping.discard(host)
        elif how and self._is_open:
            self._ended(host, how)
        else:
            host.listen(self._has_come)

    def _ended(self, host: RayHost, how: str) -> None:
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
