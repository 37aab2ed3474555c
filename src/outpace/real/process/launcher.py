"""Launchers: what starts the processes of a run, watches them and ends them.

Every launcher keeps these promises (tests/contracts/test_launchers.py):

- A role runs at the address that it was started at. Roles need neither share an address nor a file
  system, with each other or with this process.
- A process is given its role, keys included, by the launcher, never by a file or an environment
  variable.
- What a process prints reaches `on_output` in whole lines, all of them before `on_exit`.
- `on_exit` is called once for each process that ends before `stop`.
- Callbacks are called in the thread of the clock, while it waits for the next event.
- No process outlives `stop`, nor this process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from outpace.engine.output import OnOutput
from outpace.real.net.clock import RealClock

OnExit: TypeAlias = Callable[[str, str], None]  # name, how it ended: "ended with exit code 1"


@dataclass(frozen=True, slots=True)
class Role:
    """The work of one process of a run: it calls target(*arguments) and ends.

    name: unique among the roles of the run. target: a function that can be imported by name in
    another process. arguments: are pickled.
    """

    name: str
    target: Callable[..., None]
    arguments: tuple[Any, ...] = ()


class Launcher(Protocol):
    """Starts the processes of one run."""

    @property
    def addresses(self) -> Sequence[str]:
        """Addresses of the machines at which roles can be started."""

    def start(self, role: Role, address: str) -> None:
        """Start a process for this role at one of `addresses`.

        Raises:
            ConfigError: this launcher has no such address.
        """

    def is_ending(self, name: str) -> bool:
        """True if this process has ended, or is about to, and `on_exit` will be called for it."""

    def kill(self, name: str) -> None:
        """End this process at once; no effect if it has ended."""

    def suspend(self) -> None:
        """Stop all processes where they stand, until `resume`."""

    def resume(self) -> None:
        """Let all processes go on after `suspend`."""

    def stop(self, *, at_once: bool = True) -> None:
        """End all processes. Unless `at_once`, they are given a second to end by themselves."""


MakeLauncher: TypeAlias = Callable[[RealClock, OnExit, OnOutput], Launcher]
