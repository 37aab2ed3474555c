"""Files and shared memory that a killed process leaves on a machine are removed."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.ended import gone

pytest.importorskip("ray")
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes")
DIES = """
import os, subprocess, sys
from outpace.real.ray.left_behind import PassingFolder
folder = PassingFolder("outpace-test-").path
left = subprocess.Popen(
    [sys.executable, "-c", "import time; time.sleep(600)", folder], stdout=subprocess.DEVNULL)
print(folder, left.pid, flush=True)
os.kill(os.getpid(), 9)
"""


@linux
def test_the_folder_and_the_processes_of_a_killed_process_are_gone():
    said = subprocess.run([sys.executable, "-c", DIES], stdout=subprocess.PIPE, text=True).stdout
    folder, pid = said.split()
    assert gone(int(pid))
    until = time.monotonic() + 20
    while Path(folder).exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert not Path(folder).exists()


def test_a_cluster_that_is_started_here_is_in_a_folder_of_this_user_alone(monkeypatch):
    from outpace.real.ray import connecting

    given = {}
    monkeypatch.setattr(connecting, "_init", lambda **options: given.update(options))
    with contextlib.ExitStack() as closing:
        connecting._start(1.0, closing, "launcher.address")
        parent = Path(given["_temp_dir"]).parent
        assert stat.S_IMODE(parent.stat().st_mode) == 0o700
        assert len(os.fsencode(given["_temp_dir"])) < 40  # Ray's socket files are in it
    assert not parent.exists()
