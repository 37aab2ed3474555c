"""Scripts in virtual time whose servers die and come back alone, as in real runs."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.counted_pushes import (
    WORKERS,
    config,
    counts,
    require_counted,
    require_each_sample_once,
)

from outpace import simulate

STEPS = 100  # of 0.02 s; checkpoints each 0.3 s
RECOVERY = {"detected_s": 0.01, "worker_s": 0.1, "servers_s": 0.2}


def ran(*does: str, crashes: list[tuple[float, str, int]], **changes: Any) -> Any:
    schedule = [{"kind": "crash", "at_s": at_s, role: n} for at_s, role, n in crashes]
    faults = {"schedule": schedule, "recovery": RECOVERY}
    return simulate(config(STEPS, *does, faults=faults, **changes))


def test_a_server_comes_back_alone_and_the_scripts_go_on_with_the_next_sample():
    found = ran(crashes=[(1.03, "server", 1)])
    require_counted(found)
    require_each_sample_once(found)
    # Two workers, with 6 pushes each that it had applied since 0.9 s, and those on their way.
    assert 2 * 6 <= found.summary["updates_lost"] <= 2 * 8
    assert (found.summary["restarts"], found.summary["iterations"]) == (1, [STEPS] * WORKERS)
    assert counts(found)[0].eq(1).all()
    assert found.summary["virtual_time_s"] == pytest.approx(STEPS * 0.02 + 0.21, abs=0.03)


def test_what_is_lost_is_counted_if_a_worker_dies_with_both_servers():
    found = ran(crashes=[(1.03, "server", 0), (1.03, "server", 1), (1.035, "worker", 1)])
    require_counted(found)
    assert found.summary["restarts"] == 3
    # Worker 0 goes on, and lacks 44 to 51. Worker 1 begins with the state that it had at 45, which
    # is newer than what the servers have of it.
    assert found.summary["updates_lost"] == 8 + 1


def test_all_begin_again_until_a_checkpoint_has_a_state_that_the_script_has_loaded():
    # Step 60 begins at 1.2 s, and the next checkpoint is at 1.5 s.
    for at_s, lost in ((1.3, False), (1.6, True)):
        found = ran("load", "fetch", crashes=[(at_s, "server", 1)])
        require_counted(found)
        require_each_sample_once(found)
        assert (found.summary["updates_lost"] > 0) is lost
        assert found.summary["restarts"] == 1


def test_all_begin_again_if_a_script_loads_a_state_while_a_server_comes_back():
    # Workers wait 0.01 s for the second server. Step 60 begins while the server is away.
    half = {"pull": {"quorum_percent": 50, "timeout_s": 0.01}}
    found = ran("load", crashes=[(1.15, "server", 1)], **half)
    require_counted(found)
    require_each_sample_once(found)
    assert (found.summary["restarts"], found.summary["updates_lost"]) == (1, 0)
