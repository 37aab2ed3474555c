"""The process of a script, and the pipe to it."""

from __future__ import annotations

import time
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Final

from outpace.errors import RunError
from outpace.simulation.scripts.messages import FromScript, ToScript, receive, send
from outpace.support.notices import warn
from outpace.support.processes import forking

GRACE_S: Final = 2.0  # for a process to end before it is killed
_SILENT_S: Final = 120.0  # without a message, until that is said


class ChildProcess:
    """A process, from its start to its end, and the messages to and from it.

    Args:
        name: of the worker.
        start: starts the process with the other end of the pipe.
        has_reader: called while this waits; raises if nothing reads the output of scripts.
    """

    def __init__(
        self,
        name: str,
        start: Callable[[Connection], forking.Process],
        has_reader: Callable[[], None],
    ) -> None:
        self._name, self._has_reader = name, has_reader
        self.pipe, theirs = Pipe()
        with theirs:
            self._process = start(theirs)

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self.pipe.closed

    def send(self, message: ToScript) -> None:
        """Send a message. Raises ConnectionError if the process has ended."""
        send(self.pipe, message)

    def receive(self) -> FromScript:
        """Wait for the next message. Raises RunError if the process has ended."""
        since = time.monotonic()
        is_told = False
        self._has_reader()
        while not self.pipe.poll(1.0):
            self._has_reader()
            if not is_told and time.monotonic() - since > _SILENT_S:
                is_told = True
                warn(
                    f"the script of {self._name} has not come to its next step for "
                    f"{_SILENT_S:.0f} s; if it waits for another worker outside of outpace, for "
                    "a file or a lock for instance, it waits without end: interrupt it (Ctrl-C)"
                )
        try:
            message: FromScript = receive(self.pipe)
        except (EOFError, ConnectionError):
            self._process.join(GRACE_S)
            how = forking.how_it_ended(self._process)
            raise RunError(f"the process of {self._name}'s script {how}") from None
        return message

    def close(self, *, has_ended: bool) -> None:
        """End the process, whatever it does.

        has_ended: True if the script has said that it has ended, so its process does too.
        """
        self.pipe.close()
        if has_ended:
            self._process.join(GRACE_S)
        self._process.terminate()
        self._process.join(GRACE_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()
