"""The process of a script, and the pipe to it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from outpace.errors import RunError
from outpace.simulation.scripts.messages import FromScript, ToScript, receive, send
from outpace.support.notices import warn
from outpace.support.processes.children import Child

_SILENT_S: Final = 120.0  # without a message, until that is said


class ChildProcess(Child):
    """The process of a script, from its start to its end, and the messages to and from it.

    Args:
        name: of the worker.
        has_reader: called while this waits; raises if nothing reads the output of scripts.
        run: called in the process with the other end of the pipe and the arguments.
    """

    def __init__(
        self, name: str, has_reader: Callable[[], None], run: Callable[..., None], *arguments: Any
    ) -> None:
        super().__init__(name, run, *arguments)
        self._has_reader = has_reader

    @property
    def closed(self) -> bool:
        """True after `end`."""
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
                    f"the script of {self.name} has not come to its next step for "
                    f"{_SILENT_S:.0f} s; if it waits for another worker outside of outpace, for "
                    "a file or a lock for instance, it waits without end: interrupt it (Ctrl-C)"
                )
        try:
            message: FromScript = receive(self.pipe)
        except (EOFError, ConnectionError):
            how = self.how_it_ended()
            raise RunError(f"the process of {self.name}'s script {how}") from None
        return message
