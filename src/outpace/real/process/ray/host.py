"""The parent of one role's process on a node of a cluster, called from far.

A cluster manager runs a `Host` as an actor. The thread of `events` alone starts, watches and ends
the role's process; the other methods give it orders, which it carries out while the command asks
for events. The process is a new Python, since the threads of an actor must not be forked, and it
dies with the actor. The actor itself does not import torch.
"""

from __future__ import annotations

import os
import pickle
import platform
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, TypeAlias

from outpace.real.net.clock import RealClock
from outpace.real.net.waker import Waker
from outpace.real.process.launcher import Role
from outpace.real.process.local import LocalLauncher
from outpace.support.processes import forking
from outpace.support.version import __version__

OUTPUT, ERROR, EXIT, STOPPED = "output", "error", "exit", "stopped"
Event: TypeAlias = tuple[str, str]  # one of these, and a line or how a process ended

_ANSWER_S: Final = 10.0
_LOOK_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Survey:
    """What a host finds on its node: versions, and those of the wanted paths that are not there.

    torch: as `torch_version` has it; empty: it does not matter.
    """

    outpace: str
    python: str
    missing: tuple[str, ...]
    torch: str = ""


def survey_here(paths: Sequence[str] = (), torch: str = "") -> Survey:
    """Return what this process finds on its machine."""
    # `Path.exists` raises PermissionError for a path in a folder that cannot be looked into.
    missing = tuple(path for path in paths if not os.path.exists(path))
    return Survey(__version__, platform.python_version(), missing, torch)


def torch_version() -> str:
    """Return the version of torch, without its variant (`+cpu`) and without importing it."""
    return version("torch").partition("+")[0]


def problem_of(there: Survey, here: Survey, token: str = "") -> str:
    """Return in words why a node cannot take part; empty if it can.

    token: a file that it need not have.
    """
    if there.outpace != here.outpace:
        return f"has Outpace {there.outpace}, and this machine {here.outpace}: install the same"
    if there.python.split(".")[:2] != here.python.split(".")[:2]:
        return f"has Python {there.python}, and this machine {here.python}: use the same"
    files = [path for path in there.missing if path != token]
    if files:
        return (
            f"does not have {', '.join(files)}: copy it there, or put it on storage that all nodes "
            "reach"
        )
    if there.torch != here.torch:
        return f"has torch {there.torch}, and this machine {here.torch}: install the same"
    return ""


class Host:
    """Starts the processes of one role, one after the other, and says what becomes of them.

    Args:
        name: of the role.
        address: of this node, for roles that listen.
        folder: working folder of the processes, if it exists on this node.
    """

    def __init__(self, name: str, address: str, folder: str) -> None:
        if Path(folder).is_dir():
            os.chdir(folder)
        forking.start_new_pythons()
        self._name, self._address = name, address
        self._come: list[Event] = []
        self._clock = RealClock()  # of the thread of `events`
        self._waker = Waker(self._clock)
        self._launcher = LocalLauncher(self._clock, self._ended, self._printed, address)

    # -- called from far -----------------------------------------------------------------

    def order(self, method: str, *arguments: Any) -> None:
        """Have the thread of `events` call a method of this object; return when it has."""
        done = threading.Event()

        def carry_out() -> None:
            try:
                getattr(self, method)(*arguments)
            finally:
                done.set()

        self._waker.call(carry_out)
        done.wait(_ANSWER_S)

    def events(self) -> list[Event]:
        """Wait until something happens; return what has happened since the last call.

        A process that prints more before the next call must wait.
        """
        while not self._come:
            self._clock(self._clock.now + _LOOK_NS)
        taken, self._come = self._come, []
        return taken

    # -- the orders ----------------------------------------------------------------------

    def start(self, role: bytes) -> None:
        """Start a process for a pickled role, which only that process can read: it has torch."""
        self._launcher.start(Role(self._name, play, (role, self._address)))

    def kill(self) -> None:
        """End the process at once; no effect if there is none."""
        self._launcher.kill(self._name)

    def suspend(self) -> None:
        self._launcher.suspend()

    def resume(self) -> None:
        self._launcher.resume()

    def stop(self, at_once: bool) -> None:
        """End the process; its end is not told, but what it has printed, and then STOPPED."""
        self._launcher.stop(at_once=at_once)
        self._come.append((STOPPED, ""))

    # ------------------------------------------------------------------------------------

    def _printed(self, _: str, line: str, error: bool) -> None:
        self._come.append((ERROR if error else OUTPUT, line))

    def _ended(self, _: str, how: str) -> None:
        self._come.append((EXIT, how))


def play(role: bytes, address: str) -> None:
    """Run a pickled role in its process."""
    made: Role = pickle.loads(role)
    made = made.at(address)
    made.target(*made.arguments)
