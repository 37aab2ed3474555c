"""The host of a role: what its end, however it comes, means for the role's process."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.support.ended import gone

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes"),
]

HOST = """
import os, pickle, threading
from outpace.real.process.launcher import Role
from outpace.real.process.ray.host import Host

host = Host("worker-0", "127.0.0.1", ".")
role = Role("worker-0", exec, ("import os, time; print(os.getpid()); time.sleep(600)", {}))
threading.Thread(target=host.order, args=("start", pickle.dumps(role)), daemon=True).start()
((_, line),) = host.events()
host._launcher.suspend()
print(line, flush=True)
os._exit(0)  # as if it were killed: nothing is ended in order
"""


def test_a_process_ends_with_its_host_even_if_it_is_suspended_and_no_file_is_left(tmp_path):
    script = [sys.executable, "-c", HOST]
    said = subprocess.run(
        script, capture_output=True, text=True, check=True, timeout=120, cwd=tmp_path
    )
    assert gone(int(said.stdout))
    assert not list(tmp_path.iterdir())
