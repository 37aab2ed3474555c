"""Starts `outpace` and scripts in a fraction of a second, by forking a process with torch in it.

A new command imports torch, which takes two seconds of a core. Here a process imports everything
once and forks for each command. A forked process is like a user's process: it has its own folder,
environment, streams, session and fork server, and ends in the way of Python. Only the time of the
imports is missing, so tests of the start use `subprocess`.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TextIO

_MODULES = (
    "torch._dynamo",
    "outpace.cli",
    "outpace.experiment.comparison",
    "outpace.real.live",
    "outpace.real.node.server",
    "outpace.real.node.task",
    "outpace.script",
    "outpace.simulation.executors.child",
)
_LARGEST = 1 << 17  # bytes of a request


class Process:
    """A process that was started, with the part of `subprocess.Popen` that tests need."""

    def __init__(self, report: Connection, stderr: TextIO | None) -> None:
        self._report, self.stderr = report, stderr
        self.pid: int = report.recv()
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and self._report.poll():
            self.wait()
        return self.returncode

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = self._report.recv()
            self._report.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float = 60.0) -> tuple[None, str]:
        """Wait for the end, and kill the process after `timeout` seconds; return its stderr."""
        late = threading.Timer(timeout, self.kill)
        late.start()
        text = ""
        try:
            if self.stderr is not None and not self.stderr.closed:
                with self.stderr as stream:
                    text = stream.read()
            self.wait()
        finally:
            late.cancel()
            late.join()
        return None, text


class Warm:
    """A process that has imported everything and forks; closed by the end of `with`."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def __enter__(self) -> Warm:
        return self

    def __exit__(self, *_: object) -> None:
        self._control.close()
        self._process.wait()

    def outpace(self, *arguments: object, **options: Any) -> Process:
        """Start `python -m outpace` with these arguments."""
        return self._start("outpace", arguments, **options)

    def script(self, path: Path, *arguments: object, **options: Any) -> Process:
        """Start `python path` with these arguments."""
        return self._start(str(path), arguments, **options)

    def _start(
        self,
        target: str,
        arguments: Sequence[object],
        *,
        cwd: Path,
        env: dict[str, str] | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        start_new_session: bool = False,
    ) -> Process:
        """stdout, stderr: file descriptors; None: this process' one, and for stderr a pipe."""
        order = {
            "target": target,
            "arguments": [str(argument) for argument in arguments],
            "cwd": str(cwd),
            "env": dict(os.environ if env is None else env),
            "session": start_new_session,
        }
        ours, theirs = socket.socketpair()
        read, write = os.pipe()
        with theirs:
            streams = (1 if stdout is None else stdout, write if stderr is None else stderr)
            message = json.dumps(order).encode()
            socket.send_fds(self._control, [message], [theirs.fileno(), *streams])
        os.close(write)
        report = Connection(ours.detach())
        if stderr is None:
            return Process(report, os.fdopen(read))
        os.close(read)
        return Process(report, None)


# -- the process that forks ----------------------------------------------------------


def _serve(control: socket.socket) -> dict[str, Any]:
    """Fork for each order. In the new process, return the function that it must run."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the watchers are not awaited
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, _LARGEST, 3)
        if not message:
            os._exit(0)
        if not os.fork():
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # even if nohup started the tests
            return _watched(json.loads(message), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _watched(order: dict[str, Any], report: int, stdout: int, stderr: int) -> dict[str, Any]:
    """Fork once more; report on the new process from here, and return in it."""
    if pid := os.fork():
        with Connection(report) as connection, contextlib.suppress(ConnectionError):
            os.close(stdout)
            os.close(stderr)
            os.closerange(0, 3)
            connection.send(pid)
            connection.send(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        os._exit(0)
    os.close(report)
    for descriptor, place in ((stdout, 1), (stderr, 2)):
        os.dup2(descriptor, place)
        os.close(descriptor)
    if order["session"]:
        os.setsid()
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    return order


def _main() -> None:
    sys.path[0] = ""  # as for python -m
    for module in _MODULES:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    order = _serve(socket.socket(fileno=int(sys.argv[1])))
    sys.argv = [order["target"], *order["arguments"]]
    if order["target"] == "outpace":
        runpy.run_module("outpace", run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(order["target"]).parent)
        # Kept: the variables of a script live until Python has ended.
        globals()["kept"] = runpy.run_path(order["target"], run_name="__main__")


if __name__ == "__main__":
    _main()
