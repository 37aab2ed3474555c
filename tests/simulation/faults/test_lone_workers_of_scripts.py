"""Scripts in virtual time whose workers die and come back alone under `hpsgd` and `gossip`."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.counted_pushes import config
from tests.support.paths import SCRIPTS

from outpace import simulate

STEPS, WORKERS = 60, 3  # of 0.02 s; checkpoints each 0.3 s
RECOVERY = {"detected_s": 0.01, "worker_s": 0.1, "servers_s": 0.2}


def ran(kind: str, *crashes: tuple[float, int], **changes: Any) -> Any:
    """Let workers die at these times (s)."""
    schedule = [{"kind": "crash", "at_s": at_s, "worker": worker} for at_s, worker in crashes]
    made = config(STEPS, workers=WORKERS, sync={"kind": kind})
    made["task"]["arguments"] = [str(WORKERS * STEPS)]
    del made["servers"]
    made["network"] = {"latency_s": 0.005}
    made["faults"] = {"schedule": schedule, "recovery": RECOVERY}
    return simulate({**made, **changes})


def require_each_once(found: Any) -> None:
    for entries in found.parameters.values():
        assert (entries * -WORKERS).round(decimals=3).eq(1).all()
    assert (found.summary["status"], found.summary["updates_lost"]) == ("complete", 0)
    assert found.summary["iterations"] == [STEPS] * WORKERS
    assert sorted(found.metrics["sample"].to_pylist()) == list(range(WORKERS * STEPS))


@pytest.mark.parametrize("kind", ["hpsgd", "gossip"])
def test_a_script_comes_back_alone_and_each_sample_counts_once_and_is_logged_once(kind):
    found = ran(kind, (0.53, 1), (0.9, 0))
    require_each_once(found)
    assert found.summary["restarts"] == 2
    rows = found.trace.to_pylist()
    restarts = [each for each in rows if each["event"] == "restart"]
    assert sorted(each["worker"] for each in restarts) == [0, 1]
    # Away for 0.11 s, a script computes at most 0.25 s again before it goes on.
    assert found.summary["virtual_time_s"] < STEPS * 0.02 + 0.11 + 0.25 + 0.1


@pytest.mark.parametrize("kind", ["hpsgd", pytest.param("gossip", marks=pytest.mark.slow)])
def test_all_begin_again_if_no_other_worker_is_left_and_a_script_may_be_lost_after_that(kind):
    found = ran(kind, (0.5, 0), (0.505, 1), (0.51, 2), (1.05, 1))
    require_each_once(found)


def test_a_checkpoint_does_not_have_what_a_script_that_came_back_will_log_again():
    """A checkpoint is taken while a script computes what its lost process had logged already."""
    changes = {
        "network": {"latency_s": 0.05},
        "compute": {"kind": "exponential", "mean_s": 0.02},
        "seed": 14,
    }
    require_each_once(ran("hpsgd", (0.517, 0), (1.192, 0), (1.576, 0), (1.588, 1), **changes))


def test_all_begin_again_if_the_lost_script_keeps_nothing():
    plain = {"kind": "script", "path": str(SCRIPTS / "plain.py")}
    changes = {"task": plain, "stop": {"iterations": 30}, "workers": 2}
    with pytest.warns(match="begin anew, with the parameters of the checkpoint"):
        found = ran("hpsgd", (0.45, 1), **changes)
    assert found.summary["restarts"] == 1
    rows = found.trace.to_pylist()
    (restart,) = (each for each in rows if each["event"] == "restart")
    assert restart["held_ns"] is not None  # something is done again, by all
