"""Collects the output of a run's processes, and prints it in whole lines with their names.

Several processes that write to one terminal mix their lines and break the picture of the run. So
each process writes into separate pipes, and this process reads them.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Final, Protocol, TypeAlias

from outpace.support.streams import write_line

OnOutput: TypeAlias = Callable[[str, str, bool], None]  # name, line, True for standard error

_READ_BYTES: Final = 1 << 16
_LONGEST: Final = 1 << 20  # most bytes that are kept without an end of line


class Watcher(Protocol):
    """Calls a handler when a file can be read; the clock of a real run does this."""

    def watch(self, socket: int, handler: Callable[[], None]) -> Any:
        """Call the handler whenever this file descriptor can be read."""

    def forget(self, socket: int) -> None:
        """Stop watching this file descriptor."""


class OutputStream:
    """A pipe for output. `say` is called with each line that is written into it."""

    def __init__(self, watcher: Watcher, say: Callable[[str], None]) -> None:
        self._watcher, self._say = watcher, say
        self._end, self.for_child = Pipe(duplex=False)
        self._rest = b""
        os.set_blocking(self._end.fileno(), False)
        watcher.watch(self._end.fileno(), self.take)

    def take(self) -> None:
        """Read all available output, without waiting."""
        while not self._end.closed:
            try:
                data = os.read(self._end.fileno(), _READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                self.close()
                return
            *lines, self._rest = (self._rest + data).split(b"\n")
            if len(self._rest) > _LONGEST:
                lines, self._rest = [*lines, self._rest], b""
            for line in lines:
                self._say(_text(line))

    def close(self) -> None:
        """Close the pipe; the last line may lack its end."""
        if not self._end.closed:
            self._watcher.forget(self._end.fileno())
            self._end.close()
            if self._rest:
                self._say(_text(self._rest))


class Output:
    """The standard output and standard error of one process."""

    def __init__(self, watcher: Watcher, name: str, show: OnOutput) -> None:
        self._out = OutputStream(watcher, lambda line: show(name, line, False))
        self._err = OutputStream(watcher, lambda line: show(name, line, True))

    @property
    def for_process(self) -> tuple[Connection, Connection]:
        """The ends of the pipes for the process: standard output and standard error."""
        return self._out.for_child, self._err.for_child

    def started(self) -> None:
        """Close the process's ends of the pipes here, after its start."""
        for end in self.for_process:
            end.close()

    def take(self) -> None:
        """Read all available output, without waiting."""
        self._out.take()
        self._err.take()

    def close(self) -> None:
        self.take()
        self._out.close()
        self._err.close()


def print_line(name: str, line: str, error: bool) -> None:
    """Print a line to this process's standard output or error, after the name if there is one.

    Raises OutputClosed if nothing reads the output any more.
    """
    write_line(sys.stderr if error else sys.stdout, f"{name} | {line}" if name else line)


def print_into(out: Connection, err: Connection) -> None:
    """Redirect standard output and standard error of this process into pipes, line by line."""
    for stream, pipe, number in ((sys.stdout, out, 1), (sys.stderr, err, 2)):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
        os.dup2(pipe.fileno(), number)
        pipe.close()
        with contextlib.suppress(AttributeError):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def _text(line: bytes) -> str:
    """Decode a line. If a progress bar has rewritten the line, return its last state."""
    return line.decode("utf-8", "replace").rstrip("\r").rpartition("\r")[2]
