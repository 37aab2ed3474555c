"""Scripts for DistributedDataParallel in virtual time: workers stand still, are slow, or die."""

from __future__ import annotations

import pyarrow.compute as pc
import pytest
from tests.simulation.scripts.test_going_on import Killed, killed_after
from tests.simulation.scripts.test_going_on_with_ddp import CONFIG, logged, plain

import outpace
from outpace.errors import RunError

SAVED = {"checkpoint": {"every_updates": 3}}
RECOVERY = {"detected_s": 0.01, "worker_s": 0.3, "servers_s": 0.5, "lease_s": 5.0}


def crash(at_s, worker):
    return {"at_s": at_s, "kind": "crash", "worker": worker}


def failing(*schedule, out=None, **changes):
    faults = {"schedule": list(schedule), "recovery": RECOVERY}
    return outpace.simulate({**CONFIG, **changes, "faults": faults}, out)


def test_it_meets_failures_and_trains_the_same():
    schedule = [
        {"at_s": 0.25, "kind": "pause", "worker": 1, "for_s": 0.4},  # iteration 2: until 0.7
        {"at_s": 0.65, "kind": "slow", "worker": 0, "for_s": 0.1, "factor": 3.0},  # until 1.0
        {"at_s": 1.05, "kind": "partition", "worker": 0, "for_s": 0.1},  # an all-reduce at 1.1
        {"at_s": 1.2, "kind": "loss", "worker": 1},  # of that at 1.25, which takes 0.2
    ]
    found = failing(*schedule)
    assert plain().summary["virtual_time_s"] == pytest.approx(0.9)
    assert found.summary["virtual_time_s"] == pytest.approx(0.9 + 0.4 + 0.2 + 0.05 + 0.2)
    assert found.summary["parameters_digest"] == plain().summary["parameters_digest"]
    assert logged(found) == logged(plain())
    assert found.summary["faults"]["lost_s"]["standing"] == pytest.approx(0.4 / 2)
    assert found.summary["faults"]["goodput"] == pytest.approx(0.9 / 1.75)


def test_scripts_whose_processes_die_train_bitwise_the_same_and_log_everything_once(tmp_path):
    """Saved are the first three and six iterations; all go on at 1.06 s, and at 1.98 s."""
    found = failing(crash(0.55, 1), crash(1.47, 0), **SAVED, out=tmp_path / "run")
    assert found.summary["parameters_digest"] == plain().summary["parameters_digest"]
    assert logged(found) == logged(plain())
    assert (found.summary["updates_lost"], found.summary["iterations"]) == (0, [9, 9])
    assert (found.summary["restarts"], found.summary["gradients_applied"]) == (2, 18)
    assert found.summary["virtual_time_s"] == pytest.approx(1.98 + 0.3)
    rows = found.trace.filter(pc.equal(found.trace["event"], "iteration")).to_pylist()
    assert sorted((row["worker"], row["iteration"]) for row in rows) == [
        (worker, iteration) for worker in (0, 1) for iteration in range(9)
    ]


def test_a_resumed_script_meets_the_failures_that_are_to_come(tmp_path, monkeypatch):
    faults = {"schedule": [crash(0.25, 0), crash(1.35, 1)], "recovery": RECOVERY}
    with monkeypatch.context() as patch:
        killed_after(2, patch)  # after iteration 3, at 0.25 + 0.51 + 0.3 s
        with pytest.raises(Killed):
            outpace.simulate({**CONFIG, **SAVED, "faults": faults}, tmp_path / "run")
    found = outpace.simulate(None, resume=tmp_path / "run")
    # Iteration 5 begins at 1.26 s; with the death in it all go on with iteration 3 at 1.86 s.
    assert found.summary["virtual_time_s"] == pytest.approx(1.86 + 0.6)
    assert found.summary["parameters_digest"] == plain().summary["parameters_digest"]
    assert logged(found) == logged(plain())
    assert found.summary["faults"]["worker_losses"] == found.summary["restarts"] == 2
    assert found.summary["faults"]["goodput"] == pytest.approx(0.9 / 2.46)


def test_goodput_is_that_of_all_reduces_beside_the_backward_pass():
    """Of iterations that are done again the times of before count: they formed no new buckets."""
    network = {"network": {"latency_s": 0.001, "bandwidth_bytes_per_s": 1e4}}
    found = failing(crash(0.73, 1), **SAVED, **network)  # 5 iterations; 2 are done again
    whole_s = outpace.simulate({**CONFIG, **network}).summary["virtual_time_s"]
    assert whole_s > 0.9 + 9 * 2 * 0.01
    time_s = found.summary["virtual_time_s"]
    assert time_s > whole_s + 0.5 + 0.3
    assert found.summary["faults"]["goodput"] == pytest.approx(whole_s / time_s)


@pytest.mark.parametrize("changes", [{}, {"on_worker_loss": "continue"}])
def test_without_a_checkpoint_the_loss_of_a_worker_ends_the_run(changes):
    with pytest.raises(RunError, match=r"^worker-1 was killed by SIGKILL \(after 0.56.* time\)$"):
        failing(crash(0.55, 1), **changes)
