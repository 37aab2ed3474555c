"""The parent of a role: what its end, however it comes, means for the role's process."""

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
import asyncio, os, pickle
from outpace.real.process.launcher import Role
from outpace.real.process.ray.host import OutpaceHost

host = OutpaceHost(".")
role = Role("worker-0", exec, ("import os, time; print(os.getpid()); time.sleep(600)", {}))

async def use():
    await host.start("worker-0", pickle.dumps(role))
    ((_, line),) = await host.events()
    print(line, flush=True)
    os._exit(0)  # as if it were killed: nothing is ended in order

asyncio.run(use())
"""


def test_a_process_ends_with_its_host_and_no_file_is_left(tmp_path):
    script = [sys.executable, "-c", HOST]
    said = subprocess.run(
        script, capture_output=True, text=True, check=True, timeout=120, cwd=tmp_path
    )
    assert gone(int(said.stdout))
    assert not list(tmp_path.iterdir())
