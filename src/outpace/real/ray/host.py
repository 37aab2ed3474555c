"""The parent of one role's process on a node of a cluster: an actor of Ray, and its handle.

All calls of the actor are coroutines in one thread, which starts, watches and ends the process. The
process is a new Python, since the threads of an actor must not be forked; the operating system ends
it together with that thread. The actor itself does not import torch.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, TypeAlias

import ray
import ray.util
from ray.exceptions import ActorDiedError, RayError

from outpace.real.net.clock import RealClock
from outpace.real.process.launcher import Role
from outpace.real.process.local import LocalLauncher
from outpace.real.ray.nodes import has_lost_its_node, last_line, name_of_this_node
from outpace.support.processes import forking

OUTPUT, ERROR, EXIT, STOPPED = "output", "error", "exit", "stopped"
Event: TypeAlias = tuple[str, str]  # one of these kinds, with a line or how the process ended

_LOOK_S: Final = 0.02


class OutpaceHost:
    """Starts the process of one role, and reports its output and its end.

    Args:
        folder: working folder of the process, if it exists on this node.
    """

    def __init__(self, folder: str) -> None:
        if Path(folder).is_dir():
            os.chdir(folder)
        forking.start_new_pythons()
        self._come: list[Event] = []
        self._clock = RealClock()
        self._launcher = LocalLauncher(self._clock, self._ended, self._printed)

    # -- called from far -----------------------------------------------------------------

    async def start(self, name: str, role: bytes) -> str:
        """Start the process, and return the name of this node.

        Args:
            name: name of the role.
            role: the pickled role; only the process can read it, because it has torch.
        """
        address = ray.util.get_node_ip_address()
        self._launcher.start(Role(name, play, (role, address)))
        return name_of_this_node()

    async def events(self) -> list[Event]:
        """Wait until there is an event; return the events since the last call.

        If a process prints more before the next call, it must wait.
        """
        self._clock(self._clock.now)  # without waiting; this calls `_printed` and `_ended`
        while not self._come:
            await asyncio.sleep(_LOOK_S)
            self._clock(self._clock.now)
        taken, self._come = self._come, []
        return taken

    async def stop(self, at_once: bool) -> None:
        """End the process. Its output is reported, and then STOPPED instead of how it ended."""
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


class RemoteProcess:
    """The process of a role, and the actor that is its parent.

    Args:
        name: name of the role.
        host: the actor, an `OutpaceHost`.

    Attributes:
        node: name of the process's node; empty until it is known.
        events: the next events, or the error with which the actor is lost.
        is_killed: True if this process has ended it.
    """

    def __init__(self, name: str, host: Any) -> None:
        self.name, self.node, self.is_killed = name, "", False
        self.events: Future[list[Event]] = Future()
        self._host = host

    def order(self, method: str, *arguments: Any) -> Future[Any]:
        """Call a method of the actor."""
        found: Future[Any] = getattr(self._host, method).remote(*arguments).future()
        return found

    def end(self) -> None:
        """End the actor at once, and with it the process."""
        self.is_killed = True
        with contextlib.suppress(RayError, ValueError):
            ray.kill(self._host)

    @property
    def has_ended(self) -> bool:
        """True if the process has ended, even if this is not reported yet."""
        if not self.events.done():
            return False
        return self.events.exception() is not None or exit_in(self.events.result()) is not None

    def why_lost(self, error: BaseException) -> str:
        """Say how a process has ended whose actor has failed with this error."""
        where = f" on node {self.node}" if self.node else ""
        if self.is_killed:
            return "was killed by SIGKILL"
        if not isinstance(error, ActorDiedError):
            return f"was lost with its host{where} ({last_line(error)})"
        if has_lost_its_node(error):
            return f"was lost with node {self.node}" if self.node else "was lost with its node"
        return f"was lost with its actor{where}"


def exit_in(events: Sequence[Event]) -> str | None:
    """Return how the process has ended, if these events contain its end."""
    return next((text for kind, text in events if kind == EXIT), None)
