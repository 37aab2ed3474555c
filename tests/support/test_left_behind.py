"""A starter that is killed leaves no socket file, nor does a power failure for long."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from outpace.support.processes.stale_sockets import remove_stale_sockets

PROGRAM = """
import time
from outpace.support.processes import forking

process = forking.start("child", time.sleep, 100)
print("started", flush=True)
time.sleep(100)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG")
def test_a_killed_starter_leaves_no_socket_file(tmp_path: Path):
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
    ) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"started\n"
        assert [path for path in tmp_path.rglob("*") if path.is_socket()]
        starter.send_signal(signal.SIGKILL)
        starter.stdout.read()  # until no process has it open
    assert not list(tmp_path.glob("pymp-*"))


@pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
def test_a_socket_file_at_which_no_process_listens_is_removed_and_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead, living, other = (tmp_path / name for name in ("pymp-1", "pymp-2", "pymp-3"))
    for folder in (dead, living, other):
        folder.mkdir()
    with socket.socket(socket.AF_UNIX) as ended:
        ended.bind(str(dead / "listener-a"))
    (other / "listener-c").write_text("no socket")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(living / "listener-b"))  # it will listen in a moment
        remove_stale_sockets.__wrapped__()
        assert not dead.exists()
        assert (living / "listener-b").exists()
        assert (other / "listener-c").exists()
