"""What the processes of a run print: whole lines, each with the name of who printed it.

Several processes that write to one terminal tear each other's lines, and the picture of
the run. So each writes into pipes of its own; this process reads them when its kernel
looks around, and prints what came.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Final

from outpace.real.process.launcher import OnOutput

if TYPE_CHECKING:
    from outpace.real.net.clock import RealClock

_READ_BYTES: Final = 1 << 16
_LONGEST: Final = 1 << 20  # bytes without an end of line that are kept


class OutputStream:
    """One pipe: what comes out of it goes to `say`, line by line."""

    def __init__(self, clock: RealClock, say: Callable[[str], None]) -> None:
        self._clock, self._say = clock, say
        self._end, self.for_child = Pipe(duplex=False)
        self._rest = b""
        os.set_blocking(self._end.fileno(), False)
        clock.watch(self._end.fileno(), self.take)

    def take(self) -> None:
        """All that is there; does not wait."""
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
        """Nothing comes any more, or nobody listens: say what had no end of line."""
        if not self._end.closed:
            self._clock.forget(self._end.fileno())
            self._end.close()
            if self._rest:
                self._say(_text(self._rest))


class Output:
    """What one process prints."""

    def __init__(self, clock: RealClock, name: str, show: OnOutput) -> None:
        self._out = OutputStream(clock, lambda line: show(name, line, False))
        self._err = OutputStream(clock, lambda line: show(name, line, True))

    @property
    def for_process(self) -> tuple[Connection, Connection]:
        """Where the process writes to: standard output and standard error."""
        return self._out.for_child, self._err.for_child

    def started(self) -> None:
        """The process has its ends of the pipes now."""
        for end in self.for_process:
            end.close()

    def take(self) -> None:
        """What has come so far; does not wait."""
        self._out.take()
        self._err.take()

    def close(self) -> None:
        self.take()
        self._out.close()
        self._err.close()


def print_line(name: str, line: str, error: bool) -> None:
    """To this process's own standard output or error. Without a name, the line alone."""
    text = f"{name} | {line}" if name else line
    stream = sys.stderr if error else sys.stdout
    encoding = getattr(stream, "encoding", None) or "utf-8"
    # A terminal that lacks a letter is no reason to end a run.
    text = text.encode(encoding, "replace").decode(encoding)
    print(text, file=stream, flush=True)


def print_into(out: Connection, err: Connection) -> None:
    """Have this process print into these pipes from now on, line by line."""
    for stream, pipe, number in ((sys.stdout, out, 1), (sys.stderr, err, 2)):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
        os.dup2(pipe.fileno(), number)
        pipe.close()
        with contextlib.suppress(AttributeError):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def _text(line: bytes) -> str:
    """Of a progress bar, which goes back to the start of its line, the last state."""
    return line.decode("utf-8", "replace").rstrip("\r").rpartition("\r")[2]
