"""The processes of a run on this machine: started, listened to, none left behind."""

from __future__ import annotations

import time
from collections.abc import Callable
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerProcess
from typing import Any, Final

from outpace.real.net.clock import RealClock
from outpace.real.process.child import child
from outpace.real.process.output import Output, Print
from outpace.support import forking

_LEFT_ALONE_S: Final = 1.0
_GRACE_S: Final = 2.0
_LOOK_S: Final = 0.02


class Processes:
    """The processes of one run, by name. `on_exit(name, how)` is told when one ends.

    `show` is told what they print; without it they print by themselves.
    """

    def __init__(
        self, clock: RealClock, on_exit: Callable[[str, str], None], show: Print | None = None
    ) -> None:
        self._clock, self._on_exit, self._show = clock, on_exit, show
        self._running: dict[str, ForkServerProcess] = {}
        self._outputs: dict[str, Output] = {}

    def start(self, name: str, target: Callable[..., None], *arguments: Any) -> None:
        """Run `target(*arguments)` in a process of that name."""
        output = Output(self._clock, name, self._show) if self._show is not None else None
        pipes = output.for_child if output is not None else None
        process = forking.start(name, child, target, arguments, pipes)
        self._running[name] = process
        if output is not None:
            output.started()
            self._outputs[name] = output
        self._clock.watch(process.sentinel, lambda: self._ended(name))

    @property
    def pids(self) -> dict[str, int]:
        """Of those that run."""
        return {name: p.pid for name, p in self._running.items() if p.pid is not None}

    def kill(self, name: str) -> None:
        """If it still runs: it may be stopped, and hold what others wait for."""
        process = self._running.get(name)
        if process is not None:
            process.kill()

    def stop(self, *, at_once: bool = True) -> None:
        """End all that still run: left a second to end by themselves, asked, then killed."""
        if not at_once:
            self._wait(_LEFT_ALONE_S)
        for process in self._running.values():
            process.terminate()
        self._wait(_GRACE_S)
        for process in self._running.values():
            if process.is_alive():
                process.kill()
                process.join()
            self._clock.forget(process.sentinel)
            process.close()
        self._running.clear()
        for output in self._outputs.values():
            output.close()
        self._outputs.clear()

    def _wait(self, limit_s: float) -> None:
        """Until all have ended; meanwhile take what they print, or they might wait for that."""
        deadline = time.monotonic() + limit_s
        alive = [process.sentinel for process in self._running.values()]
        while alive and time.monotonic() < deadline:
            ended = wait(alive, _LOOK_S)
            alive = [sentinel for sentinel in alive if sentinel not in ended]
            for output in self._outputs.values():
                output.take()

    def _ended(self, name: str) -> None:
        process = self._running.pop(name)
        self._clock.forget(process.sentinel)
        process.join()
        if name in self._outputs:
            self._outputs.pop(name).close()
        how = forking.how_it_ended(process)
        process.close()
        self._on_exit(name, how)
