"""The launcher for processes on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, Final

from outpace.engine.output import OnOutput, Output, print_into
from outpace.real.net.addresses import LOOPBACK
from outpace.real.net.clock import RealClock
from outpace.real.process.launcher import Launcher, OnExit, Role
from outpace.support.processes import forking
from outpace.support.processes.standing import is_ending

_LEFT_ALONE_S: Final = 1.0
_GRACE_S: Final = 2.0
_LOOK_S: Final = 0.02


class LocalLauncher(Launcher):
    """A launcher whose processes are children of this one. address: address of this machine."""

    def __init__(
        self,
        clock: RealClock,
        on_exit: OnExit,
        on_output: OnOutput,
        address: str = LOOPBACK,
    ) -> None:
        self._clock, self._on_exit, self._on_output = clock, on_exit, on_output
        self._address = address
        self._running: dict[str, forking.Process] = {}
        self._outputs: dict[str, Output] = {}

    @property
    def pids(self) -> dict[str, int]:
        """Process ids of the processes that run, by name."""
        return {name: p.pid for name, p in self._running.items() if p.pid is not None}

    def start(self, role: Role) -> None:
        role = role.at(self._address)
        output = Output(self._clock, role.name, self._on_output)
        pipes = output.for_process
        process = forking.start(role.name, _play, role.target, role.arguments, pipes)
        output.started()
        self._running[role.name], self._outputs[role.name] = process, output
        self._clock.watch(process.sentinel, lambda: self._ended(role.name))

    def is_ending(self, name: str) -> bool:
        process = self._running.get(name)
        return process is not None and process.pid is not None and is_ending(process.pid)

    def kill(self, name: str) -> None:
        process = self._running.get(name)
        if process is not None:
            process.kill()

    def stop(self, *, at_once: bool = True) -> None:
        if not at_once:
            self._wait(_LEFT_ALONE_S)
        for name, process in self._running.items():
            (process.kill if name.startswith("server-") else process.terminate)()
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
        """Wait until all have ended, and read their output, because a full pipe would stop them."""
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
        self._outputs.pop(name).close()
        how = forking.how_it_ended(process)
        process.close()
        self._on_exit(name, how)


def _play(
    target: Callable[..., object],
    arguments: Sequence[Any],
    pipes: tuple[Connection, Connection],
) -> None:
    """Run a role in its process."""
    print_into(*pipes)
    target(*arguments)
