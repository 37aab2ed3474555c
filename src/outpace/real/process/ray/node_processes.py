"""The processes of a pool of runs on one node of a cluster, called from far.

A cluster manager runs a `NodeProcesses` as an actor, one on each node. The methods are called from
its threads. The processes are started, heard and ended by one thread of this object: the fork
server dies with the thread that has started it, and the processes die with the fork server. The
messages of the processes are passed on as they are; only the pool knows what they mean.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TypeAlias

from outpace.engine.output import Output, print_into
from outpace.real.process.ray.host import ERROR, EXIT, OUTPUT, Survey, survey_here
from outpace.real.process.ray.left_behind import PassingFolder
from outpace.support.processes import forking

MESSAGE, MISSING = "message", "missing"
News: TypeAlias = tuple[int, str, bytes]
"""A slot, the kind, and what it is: a message; a line; how the process ended; missing paths."""


def torch_version() -> str:
    """Return the version of torch, without its variant (`+cpu`) and without importing it."""
    return version("torch").partition("+")[0]


@dataclass(eq=False, slots=True)
class _Process:
    process: forking.Process
    pipe: Connection
    output: Output


class NodeProcesses:
    """Starts a process for each slot of the pool on this node, and hands on what it sends.

    Args:
        folder: working folder of the processes, if it exists on this node.
        modules: are imported before any process is forked.
        target: module:function, called in a process with its end of a pipe and a folder of this
            node, which is gone when this object is.
    """

    def __init__(self, folder: str, modules: Sequence[str], target: str) -> None:
        if Path(folder).is_dir():
            os.chdir(folder)
        self._target = target
        self._folder = PassingFolder("outpace-runs-")
        self._base = self._folder.path
        self._news: list[News] = []
        self._changed = threading.Condition()
        self._failure: BaseException | None = None
        self._processes: dict[int, _Process] = {}
        self._handlers: dict[int, Callable[[], object]] = {}  # by file descriptor
        self._commands = deque[Callable[[], None]]()
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._woken, False)
        self._is_open = True
        for module in modules:
            forking.preload(module)
        self._thread = threading.Thread(target=self._work, name="processes", daemon=True)
        self._thread.start()

    # -- called from far -----------------------------------------------------------------

    def survey(self, paths: Sequence[str]) -> tuple[Survey, str]:
        """Return what this process finds on its node, and the version of torch."""
        return survey_here(paths), torch_version()

    def begin(self, slot: int, message: bytes, paths: Sequence[str], anew: bool) -> None:
        """Send a message to the process of a slot, which is started if there is none.

        Args:
            paths: if one is not there, this is told as `MISSING`, and nothing is sent.
            anew: end the process that the slot has, and start another one.
        """
        if missing := survey_here(paths).missing:
            self._tell(slot, MISSING, "\n".join(missing).encode())
        else:
            self._order(lambda: self._begin(slot, message, anew))

    def send(self, slot: int, message: bytes) -> None:
        """Send a message to the process of a slot; no effect if it has ended."""
        self._order(lambda: self._send(slot, message))

    def interrupt(self, slot: int) -> None:
        """Send SIGTERM to the process of a slot; no effect if it has ended."""
        self._order(lambda: self._processes[slot].process.terminate(), slot)

    def end(self, slot: int) -> None:
        """End the process of a slot; nothing is told of it any more but what it has printed."""
        self._order(lambda: self._end(slot), slot)

    def news(self, wait_s: float) -> list[News]:
        """Return what has happened since the last call; wait for it if nothing has.

        Raises RuntimeError if the thread of this object has failed; its processes have ended.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._news or self._failure is not None, wait_s)
            if self._failure is not None and not self._news:
                raise RuntimeError(f"the processes of the node failed: {self._failure!r}")
            taken, self._news = self._news, []
        return taken

    def files(self, folder: str) -> list[tuple[str, int]]:
        """Return paths and sizes of all files in a folder; of a folder, its path and -1."""
        found = []
        for path in sorted(Path(folder).rglob("*")):
            name = path.relative_to(folder).as_posix()
            if path.is_dir():
                found.append((name, -1))
            elif path.is_file():
                found.append((name, path.stat().st_size))
        return found

    def read(self, path: str, begin: int, size: int) -> bytes:
        """Return so many bytes of a file, or fewer at its end."""
        with open(path, "rb") as file:
            file.seek(begin)
            return file.read(size)

    def remove(self, folder: str) -> None:
        """Remove a folder that a process has written."""
        shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """End all processes, and remove what they have written."""
        if self._is_open:
            self._order(self._close)
            self._thread.join()
            shutil.rmtree(self._base, ignore_errors=True)
            self._folder.close()

    # -- the thread of this object -------------------------------------------------------

    def watch(self, socket: int, handler: Callable[[], None]) -> None:
        self._handlers[socket] = handler

    def forget(self, socket: int) -> None:
        del self._handlers[socket]

    def _work(self) -> None:
        try:
            forking.start_fork_server()
            self.watch(self._woken, self._carry_out)
            while self._is_open:
                for ready in wait(list(self._handlers)):
                    assert isinstance(ready, int)
                    if ready in self._handlers:  # else an earlier one of these has ended it
                        self._handlers[ready]()
        except BaseException as error:
            with self._changed:
                self._failure = error
                self._changed.notify_all()
            raise
        finally:
            os.close(self._woken)

    def _order(self, action: Callable[[], None], slot: int | None = None) -> None:
        """Have the thread do this; slot: only if it has a process then."""

        def carry_out() -> None:
            if slot is None or slot in self._processes:
                action()

        self._commands.append(carry_out)
        with contextlib.suppress(OSError):  # the thread has ended
            os.write(self._wake, b"x")

    def _carry_out(self) -> None:
        os.read(self._woken, 4096)
        while self._commands and self._is_open:
            self._commands.popleft()()

    def _begin(self, slot: int, message: bytes, anew: bool) -> None:
        if slot in self._processes and (anew or not self._processes[slot].process.is_alive()):
            self._end(slot)
        if slot not in self._processes:
            self._start(slot)
        self._send(slot, message)

    def _start(self, slot: int) -> None:
        ours, theirs = Pipe()
        output = Output(self, str(slot), self._printed)
        ends = output.for_process
        process = forking.start(f"run-{slot}", _call, self._target, theirs, self._base, *ends)
        theirs.close()
        output.started()
        self._processes[slot] = _Process(process, ours, output)
        self.watch(ours.fileno(), partial(self._take, slot))

    def _send(self, slot: int, message: bytes) -> None:
        if slot in self._processes:
            with contextlib.suppress(OSError):  # it has ended, which `_take` notices
                self._processes[slot].pipe.send_bytes(message)

    def _take(self, slot: int) -> None:
        """Take a message of a process, or its end."""
        found = self._processes[slot]
        try:
            message = found.pipe.recv_bytes()
        except (EOFError, OSError):
            found.process.join()
            how = forking.how_it_ended(found.process)
            self._forget(slot)
            self._tell(slot, EXIT, how.encode())
        else:
            found.output.take()  # what was printed before
            self._tell(slot, MESSAGE, message)

    def _printed(self, slot: str, line: str, error: bool) -> None:
        self._tell(int(slot), ERROR if error else OUTPUT, line.encode())

    def _end(self, slot: int) -> None:
        self._processes[slot].process.kill()
        self._processes[slot].process.join()
        self._forget(slot)

    def _forget(self, slot: int) -> None:
        """Forget a process that has ended."""
        found = self._processes.pop(slot)
        self.forget(found.pipe.fileno())
        found.pipe.close()
        found.output.close()
        found.process.close()

    def _close(self) -> None:
        for slot in list(self._processes):
            self._end(slot)
        self._is_open = False

    def _tell(self, slot: int, kind: str, what: bytes) -> None:
        with self._changed:
            self._news.append((slot, kind, what))
            self._changed.notify_all()


def _call(target: str, pipe: Connection, base: str, out: Connection, error: Connection) -> None:
    """Call the function in a new process, which prints into the two pipes."""
    print_into(out, error)
    module, _, name = target.partition(":")
    getattr(importlib.import_module(module), name)(pipe, base)
