"""Starts the processes of a run on this machine, and leaves none behind.

They come from a fork server that has imported torch already: importing it eleven times
takes seven seconds, forking eleven times one. The fork server has a session of its own,
so Ctrl-C in the terminal reaches the launcher alone, which then ends the run in order.
When the launcher dies a thread in every process ends it. On Linux, moreover, the kernel
kills the fork server when the launcher dies, and every process when the fork server
dies, whatever each is doing.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import os
import signal
import sys
import time
import types
from collections.abc import Callable, Iterator
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerProcess
from typing import Any, Final

from outpace.real.child import child
from outpace.real.clock import RealClock
from outpace.real.output import Output, Print

_PRELOAD: Final = "outpace.real.preload"
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
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([_PRELOAD])
        self._running: dict[str, ForkServerProcess] = {}
        self._outputs: dict[str, Output] = {}

    def start(self, name: str, target: Callable[..., None], *arguments: Any) -> None:
        """Run `target(*arguments)` in a process of that name."""
        output = Output(self._clock, name, self._show) if self._show is not None else None
        pipes = output.for_child if output is not None else None
        process = self._context.Process(
            target=child, args=(target, arguments, os.getcwd(), dict(os.environ), pipes),
            name=name, daemon=True,
        )  # fmt: skip
        with _no_main_module():
            _start_fork_server()
            process.start()
        self._running[name] = process
        if output is not None:
            output.started()
            self._outputs[name] = output
        self._clock.watch(process.sentinel, lambda: self._ended(name))

    @property
    def pids(self) -> dict[str, int]:
        """Of those that run."""
        return {name: p.pid for name, p in self._running.items() if p.pid is not None}

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
        how = _how(process.exitcode)
        process.close()
        self._on_exit(name, how)


def _start_fork_server() -> None:
    """If there is none. Until it has a session of its own it must not hear of Ctrl-C."""
    multiprocessing.resource_tracker.ensure_running()  # it would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        multiprocessing.forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _no_main_module() -> Iterator[None]:
    """Keep multiprocessing from running the user's script again in every process."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _how(code: int | None) -> str:
    if code is not None and code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
