"""How busy the cores are: what this process does itself, and what others do."""

import os
import subprocess
import sys
import time

import pytest

from outpace.support.processes.cores import CoresUsed

WORK = "import time\nwhile time.process_time() < 0.3: pass"


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_the_processor_time_of_this_process_and_its_children_is_not_that_of_others():
    used, started_s, own_s = CoresUsed(), time.monotonic(), time.process_time()
    subprocess.run([sys.executable, "-S", "-c", WORK], check=True)
    while time.process_time() < own_s + 0.2:
        pass
    own_s = time.process_time() - own_s + 0.3
    found, took_s = used.data(), time.monotonic() - started_s
    if found is None:
        pytest.skip("/proc/stat counts nothing here")
    assert found["cores"] == os.cpu_count()
    assert found["others"] <= found["busy"]
    # Counted in ticks of 0.01 s, and rounded to 0.01 of a core.
    assert (found["busy"] - found["others"]) * took_s == pytest.approx(own_s, abs=0.15)
