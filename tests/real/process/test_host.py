"""The host of a role: what its end, however it comes, means for the role's process."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.support.test_template import gone

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes"),
]

HOST = """
import os, pickle, secrets, sys
from outpace.real.process.launcher import Role
from outpace.real.process.ray import host as hosts
from outpace.support.processes.forking import preloaded

hosts.MODULES = ("torch",)  # enough for these roles
host = hosts.Host("worker-0", "127.0.0.1", ".", preloaded(), {key})
role = Role("worker-0", exec, ("import os, time; print(os.getpid()); time.sleep(600)", {{}}))
host.start(pickle.dumps(role))
((_, line),) = host.events(0, 60)
host.suspend()
print(line, flush=True)
os._exit(0)  # as if it were killed: nothing is ended in order
"""


@pytest.mark.parametrize(
    "key", [pytest.param("secrets.token_hex(8)", id="template"), pytest.param("None", id="thread")]
)
def test_a_process_ends_with_its_host_even_if_it_is_suspended_and_no_file_is_left(key, tmp_path):
    script = [sys.executable, "-c", HOST.format(key=key)]
    said = subprocess.run(
        script, capture_output=True, text=True, check=True, timeout=120, cwd=tmp_path
    )
    assert gone(int(said.stdout))
    assert not list(tmp_path.iterdir())
