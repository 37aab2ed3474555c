"""A launcher whose processes run on the nodes of a cluster, each as the child of an actor."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

from outpace.engine.output import OnOutput
from outpace.real.net.clock import RealClock
from outpace.real.net.waker import Waker
from outpace.real.process.launcher import Launcher, OnExit, Role
from outpace.real.ray.cluster import RayCluster
from outpace.real.ray.host import ERROR, OUTPUT, STOPPED, Event, RemoteProcess, exit_in

_STOP_S: Final = 8.0  # seconds for an actor to end its process, which may take 3 s


class RayLauncher(Launcher):
    """A launcher whose processes have places on a cluster.

    Threads of Ray report events, and the clock's thread handles them. The last output of a process
    before it is killed may be missing.
    """

    def __init__(
        self, places: RayCluster, clock: RealClock, on_exit: OnExit, on_output: OnOutput
    ) -> None:
        self._places = places
        self.nodes, self.room_s = places.nodes, places.room_s
        self._on_exit, self._on_output = on_exit, on_output
        self._running: dict[str, RemoteProcess] = {}
        self._leaving: set[str] = set()  # roles whose places are given back when they have ended
        self._is_open = True  # None after `stop`
        self._waker = Waker(clock)

    def reserve(self, names: Sequence[str]) -> None:
        self._places.reserve(names)

    def no_room(self, names: Sequence[str]) -> Future[str]:
        waiting = [name for name in names if name in self._running and not self._running[name].node]
        found = Future[str]()

        def take(answer: Future[str]) -> None:
            error = answer.exception()
            if error is not None:
                found.set_exception(error)
            else:
                found.set_result(answer.result() or _not_started(waiting))

        self._places.no_room(names).add_done_callback(take)
        return found

    def start(self, role: Role) -> None:
        # the process should have ended, but its end was not reported
        if role.name in self._running:
            # A place that it gives back may have no node, so this process requests a new one.
            self._forget(self._running[role.name])
        self._leaving.discard(role.name)
        process = self._places.host(role.name)
        self._running[role.name] = process
        started = process.order("start", role.name, pickle.dumps(role))
        self._when(started, partial(self._has_started, process))
        self._listen(process)

    def is_ending(self, name: str) -> bool:
        return name in self._running and self._running[name].has_ended

    def kill(self, name: str) -> None:
        if name in self._running:
            self._running[name].end()

    def release(self, name: str) -> None:
        if name in self._running:
            self._leaving.add(name)
        else:
            self._places.release(name)

    def keep_only(self, names: Collection[str]) -> None:
        self._places.keep_only(names)

    def stop(self, *, at_once: bool = True) -> None:
        if not self._is_open:
            return
        self._is_open = False
        for process in self._running.values():
            process.order("stop", at_once)
        deadline = time.monotonic() + _STOP_S
        while self._running and (left_s := deadline - time.monotonic()) > 0:
            self._waker.run_within(left_s)
        self._waker.stop()
        self._waker.close()
        for process in [*self._running.values()]:
            self._forget(process)

    # ----------------------------------------------------------------------------------

    def _when(self, answer: Future[Any], take: Callable[[Future[Any]], None]) -> None:
        """Call `take` with an answer in the thread of the clock, once the answer has arrived."""
        answer.add_done_callback(lambda _: self._waker.call(partial(take, answer)))

    def _has_started(self, process: RemoteProcess, node: Future[str]) -> None:
        error = node.exception()
        if error is None:
            process.node = self._places.nodes[process.name] = node.result()
        elif self._running.get(process.name) is process:
            self._end(process, process.why_lost(error))

    def _listen(self, process: RemoteProcess) -> None:
        process.events = process.order("events")
        self._when(process.events, partial(self._take, process))

    def _take(self, process: RemoteProcess, come: Future[list[Event]]) -> None:
        if self._running.get(process.name) is not process:
            return
        error = come.exception()
        if error is not None:
            self._end(process, process.why_lost(error))
            return
        events = come.result()
        for kind, text in events:
            if kind in (OUTPUT, ERROR):
                self._on_output(process.name, text, kind == ERROR)
        how = exit_in(events)
        if (STOPPED, "") in events:
            self._forget(process)
        elif how is not None and self._is_open:
            self._end(process, how)
        else:
            self._listen(process)

    def _end(self, process: RemoteProcess, how: str) -> None:
        self._forget(process)
        if self._is_open:
            self._on_exit(process.name, how)

    def _forget(self, process: RemoteProcess) -> None:
        """End the actor of a process that has ended, or that counts as lost."""
        process.end()
        del self._running[process.name]
        if process.name in self._leaving:
            self._leaving.remove(process.name)
            self._places.release(process.name)


def _not_started(names: Sequence[str]) -> str:
    """Say that these roles have places, but that Ray has started no process there."""
    if not names:
        return ""
    return (
        f"Ray has a place for {', '.join(names)}, and has not started an actor there: see whether "
        "its node has too much to do, and what `ray list actors` says"
    )
