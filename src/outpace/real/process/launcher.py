"""Launchers, which start the processes of a run, watch them and end them.

Every launcher keeps these promises (`outpace.testing.check_launcher`):

- The launcher chooses the machine of a role. A role that must know its machine's address has
  `ADDRESS` among its arguments. Roles need not share a machine or a file system with each other or
  with this process.
- The launcher itself passes a process its role, including the keys, never by a file or an
  environment variable.
- The output of a process is passed to `on_output` in whole lines, all of them before `on_exit`.
- `on_exit` is called once for each process that ends before `stop`.
- Callbacks are called in the thread of the clock, while it waits for the next event.
- No process is alive after `stop`, or after the end of this process.

On a cluster each role has a place, which the launcher requests and keeps when the role's process
ends. On this machine there are no places, and the methods about them do nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, TypeAlias

from outpace.engine.output import OnOutput
from outpace.real.net.clock import RealClock

OnExit: TypeAlias = Callable[[str, str], None]  # name, how it ended: "ended with exit code 1"


class _Known(Enum):
    ADDRESS = "address"


ADDRESS: Final = _Known.ADDRESS
"""Stands among the arguments of a role for the address of the machine that it is started on."""


@dataclass(frozen=True, slots=True)
class Role:
    """The work of one process of a run: it calls target(*arguments) and ends.

    name: unique among the roles of the run. target: a function that can be imported by name in
    another process. arguments: are pickled; `ADDRESS` is replaced.
    """

    name: str
    target: Callable[..., object]
    arguments: tuple[Any, ...] = ()

    def at(self, address: str) -> Role:
        """Return this role on a machine with this address."""
        arguments = tuple(address if each is ADDRESS else each for each in self.arguments)
        return replace(self, arguments=arguments)


class Launcher:
    """Starts the processes of one run.

    Attributes:
        nodes: names of the nodes on which the roles were started; empty if all are on this machine.
        room_s: seconds that a run waits for places for new roles when its numbers change.
    """

    nodes: Mapping[str, str] = {}  # never changed
    room_s: float = 0.0

    def start(self, role: Role) -> None:
        """Start a process for this role."""
        raise NotImplementedError

    def is_ending(self, name: str) -> bool:
        """True if this process has ended, or will soon, and `on_exit` will be called for it."""
        return False

    def kill(self, name: str) -> None:
        """End this process at once; no effect if it has ended."""

    def stop(self, *, at_once: bool = True) -> None:
        """End all processes. Unless `at_once`, they have a second to end by themselves."""

    # -- places on a cluster ------------------------------------------------------------

    def reserve(self, names: Sequence[str]) -> None:
        """Request places for these roles, whose processes are not started yet.

        `no_room` tells whether they have places.
        """

    def no_room(self, names: Sequence[str]) -> Future[str]:
        """Begin to ask which of these roles have no place, and why.

        Returns:
            A sentence for an error; empty if all have a place. A busy cluster may not answer, and
            the call may raise any error of the cluster's library.
        """
        return answered("")

    def release(self, name: str) -> None:
        """Give back the place of this role when its process has ended or is lost.

        The role has another place when it is started again.
        """

    def keep_only(self, names: Collection[str]) -> None:
        """Give back the places of all other roles. May also be called after `stop`."""


MakeLauncher: TypeAlias = Callable[[RealClock, OnExit, OnOutput], Launcher]


def answered(text: str) -> Future[str]:
    """Return an answer that is known at once."""
    found = Future[str]()
    found.set_result(text)
    return found
