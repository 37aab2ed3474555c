"""A fork server that is a copy of the process of a command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from tests.support.ended import gone

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="copies are made on Linux only")

# A command with a module, a file, handlers and a filter of warnings, which a new Python does not
# have. Its process reports which of them it has.
COMMAND = """
import gc, json, multiprocessing.forkserver, os, signal, socket, sys, threading, types, warnings
usual = list(gc.get_threshold())
from outpace.errors import OutpaceWarning
from outpace.support.garbage import collect_rarely
from outpace.support.notices import warnings_to
from outpace.support.processes import forking

TELL = '''
import gc, json, os, signal, sys, time, warnings
from outpace.support.processes import forking
print(json.dumps({
    "has module": "of_the_command" in sys.modules,
    "argv": sys.argv[0],
    "sigterm": signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,
    "sighup": signal.getsignal(signal.SIGHUP) == signal.SIG_IGN,
    "sigusr2": signal.getsignal(signal.SIGUSR2) == signal.SIG_DFL,
    "shows": warnings.showwarning.__module__,
    "filters": [each[0] for each in warnings.filters if each[2].__name__ == "OutpaceWarning"],
    "garbage": list(gc.get_threshold()),
    "locked": forking._STARTING.locked(),
    "server": os.getppid(),
    "pid": os.getpid(),
}), flush=True)
time.sleep(600)
'''
sys.modules["of_the_command"] = types.ModuleType("of_the_command")
collect_rarely()
signal.signal(signal.SIGHUP, signal.SIG_IGN)
signal.signal(signal.SIGUSR2, lambda *_: None)
forking.PRELOADED[:] = [forking._BEGIN]  # a new Python imports no more than that
ours, theirs = socket.socketpair()
if "thread" in sys.argv:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
with warnings_to(print):
    forking.start_fork_server_as_copy()
    process = forking.start("child", exec, TELL, {})
    theirs.close()
    ours.settimeout(30)
    print(json.dumps({"closed": not ours.recv(1), "usual": usual}), flush=True)
    process.join()
    if "again" in sys.argv:
        server = vars(multiprocessing.forkserver)["_forkserver"]._forkserver_pid
        os.waitid(os.P_PID, server, os.WEXITED | os.WNOWAIT)
        forking.start("child", exec, TELL, {}).join()
"""


class Command:
    """The process of COMMAND, and the output of it and of its child."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        (folder / "torch.py").write_text("def set_num_threads(number): pass\n")  # is quick
        paths = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
        self.process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, *arguments],
            env={**os.environ, "TMPDIR": str(folder), "PYTHONPATH": paths},
            stdout=subprocess.PIPE,
            text=True,
        )

    def said(self, times: int = 1) -> dict[str, Any]:
        """Return this many lines of output, in any order."""
        assert self.process.stdout is not None
        lines = [self.process.stdout.readline() for _ in range(times)]
        return {key: value for line in lines for key, value in json.loads(line).items()}

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def folder():
    """A folder with a short name, in which sockets can be made."""
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


def test_a_copy_has_the_modules_of_the_command_and_nothing_else_of_it(folder):
    with Command(folder) as command:
        said = command.said(2)
        server, child = said.pop("server"), said.pop("pid")
        assert said.pop("garbage") == said.pop("usual")
        command.process.kill()
        assert gone(server), "it ends with the command"
        assert gone(child)
    assert said == {
        "has module": True,
        "closed": True,  # it holds no file of the command open
        "argv": "-c",
        "sigterm": True,
        "sighup": True,  # as after nohup
        "sigusr2": True,
        "shows": "warnings",
        "filters": [],
        "locked": False,
    }


def test_a_lost_copy_is_replaced_by_a_new_python(folder):
    with Command(folder, "again") as command:
        said = command.said(2)
        os.kill(said["server"], signal.SIGKILL)
        again = command.said()
        assert again["server"] != said["server"]
        assert said["has module"]
        assert not again["has module"]


def test_a_command_with_a_thread_has_a_new_python_as_its_fork_server(folder):
    """A copy would lack the thread, and might wait for a lock that it holds."""
    with Command(folder, "thread") as command:
        assert not command.said(2)["has module"]
