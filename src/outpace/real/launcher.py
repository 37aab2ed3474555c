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
from multiprocessing.context import ForkServerProcess
from typing import Any, Final

from outpace.real.child import child
from outpace.real.clock import RealClock

_PRELOAD: Final = "outpace.real.preload"
_LEFT_ALONE_S: Final = 1.0
_GRACE_S: Final = 2.0


class Processes:
    """The processes of one run, by name. `on_exit(name, how)` is told when one ends."""

    def __init__(self, clock: RealClock, on_exit: Callable[[str, str], None]) -> None:
        self._clock, self._on_exit = clock, on_exit
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([_PRELOAD])
        self._running: dict[str, ForkServerProcess] = {}

    def start(self, name: str, target: Callable[..., None], *arguments: Any) -> None:
        """Run `target(*arguments)` in a process of that name."""
        process = self._context.Process(
            target=child, args=(target, arguments, os.getcwd(), dict(os.environ)),
            name=name, daemon=True,
        )  # fmt: skip
        with _no_main_module():
            _start_fork_server()
            process.start()
        self._running[name] = process
        self._clock.watch(process.sentinel, lambda: self._ended(name))

    @property
    def pids(self) -> dict[str, int]:
        """Of those that run."""
        return {name: p.pid for name, p in self._running.items() if p.pid is not None}

    def stop(self, *, at_once: bool = True) -> None:
        """End all that still run: left a second to end by themselves, asked, then killed."""
        deadline = time.monotonic() + _LEFT_ALONE_S
        for process in self._running.values():
            process.join(max(0.0, deadline - time.monotonic()) if not at_once else 0.0)
            process.terminate()
        deadline = time.monotonic() + _GRACE_S
        for process in self._running.values():
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
            self._clock.forget(process.sentinel)
            process.close()
        self._running.clear()

    def _ended(self, name: str) -> None:
        process = self._running.pop(name)
        self._clock.forget(process.sentinel)
        process.join()
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
