"""A starter that is killed leaves no socket file."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

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
