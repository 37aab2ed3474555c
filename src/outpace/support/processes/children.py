"""A process that this one starts, with a pipe between them."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing import Pipe
from typing import Any, Final

from outpace.support.processes import forking

GRACE_S: Final = 2.0  # for a process to end before it is killed


class Child:
    """Runs `target(pipe, *arguments)` in a new process, see `forking.start`.

    Attributes:
        pipe: this process's end.
    """

    def __init__(self, name: str, target: Callable[..., None], *arguments: Any) -> None:
        self.name = name
        self.pipe, theirs = Pipe()
        with theirs:
            try:
                self._process = forking.start(name, target, theirs, *arguments)
            except BaseException:
                self.pipe.close()
                raise

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process.pid is not None
        return self._process.pid

    def how_it_ended(self) -> str:
        """Say how the process ended, whose end of the pipe is closed."""
        self._process.join(GRACE_S)
        return forking.how_it_ended(self._process)

    def end(self, *, by_itself: bool = False) -> None:
        """Close the pipe, and tell the process to end.

        by_itself: the process is about to end, and has some seconds for it.
        """
        self.pipe.close()
        if by_itself:
            self._process.join(GRACE_S)
        self._process.terminate()

    def close(self) -> None:
        """Wait until the process has ended, after `end`; kill it if it takes too long."""
        self._process.join(GRACE_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()
