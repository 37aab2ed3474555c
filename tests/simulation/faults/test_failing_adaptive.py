"""Adaptive strategies in simulated runs with failures: settings and switches."""

from __future__ import annotations

import pytest
from tests.simulation.faults.ledger import Ran, experiment, random_faults

PROGRESS = {"kind": "adaptive", "stale": False, "scale": "sum", "window": 3}
SLOW = {"workers": [2], "factor": 6.0}
COMPUTE = {"kind": "constant", "mean_s": 0.1, "slow": [SLOW]}


def switches(found: Ran) -> list[tuple[str, str]]:
    said = [each.summary() for each in found.totals.switches]
    return [(each["from"], each["to"]) for each in said]


def rows(found: Ran, event: str) -> list[dict]:
    return [row for row in found.trace.to_pylist() if row["event"] == event]


@pytest.mark.parametrize("strategy", ["adaptive", "sync-switch", "adacomm"])
def test_each_switch_is_noted_once_whatever_fails(strategy):
    servers, noted = 0 if strategy == "adacomm" else 2, 0
    for seed in range(4):
        faults = random_faults(1000 * seed + 7, workers=3, servers=servers, until_s=2.5)
        found = Ran(experiment(strategy, {"schedule": faults}, seed=seed), tie_seed=seed)
        numbers = [row["version"] for row in rows(found, "switch")]
        assert numbers == list(range(len(found.totals.switches)))
        noted += len(numbers)
        # The run without failures is simulated without gradients, so without their noise and loss.
        assert (found.costs["goodput"] is None) == (strategy != "sync-switch")
    assert noted


def test_a_server_that_is_lost_comes_back_with_the_setting_of_the_checkpoint():
    crash = {"kind": "crash", "at_s": 2.53, "server": 1}
    sync = {"sync": PROGRESS, "compute": COMPUTE}
    found = Ran(experiment("adaptive", {"schedule": [crash]}, **sync))
    _, (before, after) = switches(found)
    assert (before[:8], after[:8]) == ("quorum 3", "quorum 2")
    _, switch = rows(found, "switch")
    assert switch["start_ns"] < 2e9
    assert found.recovery.restarts == 1
    later = [row for row in rows(found, "push") if row["start_ns"] > 2.8e9]
    assert {row["outcome"] for row in later if row["worker"] != 2} == {"applied"}
    assert {row["outcome"] for row in later if row["worker"] == 2} == {"abstained"}


def test_a_switch_that_is_lost_with_all_processes_is_ordered_again():
    crash = {"kind": "crash", "at_s": 1.0, "server": 1}
    changes = {"sync": PROGRESS, "compute": COMPUTE, "checkpoint": {"every_s": 0.75}}
    plain = Ran(experiment("adaptive", None, **{**changes, "checkpoint": None}))
    *_, first = rows(plain, "switch")
    assert 0.76e9 < first["start_ns"] < 1e9  # after the checkpoint and before the crash
    found = Ran(experiment("adaptive", {"schedule": [crash]}, **changes))
    assert switches(found) == switches(plain)
    *_, again = rows(found, "switch")
    assert (again["version"], again["iteration"]) == (first["version"], first["iteration"])
    assert again["start_ns"] > 1e9


def test_the_quorum_is_one_of_all_again_when_a_worker_is_lost_for_good():
    crash = {"kind": "crash", "at_s": 0.53, "worker": 1}
    sync = {**PROGRESS, "gain_percent": 1000.0}
    changes = {"sync": sync, "compute": {"kind": "constant", "mean_s": 0.1}}
    faults = {"schedule": [crash]}
    found = Ran(experiment("adaptive", faults, on_worker_loss="continue", **changes))
    (_, to), (before, after) = switches(found)
    grace = to.removeprefix("quorum 3")
    assert grace.startswith(", grace ")
    assert (before, after) == (to, f"quorum 2{grace}")
    reason = found.totals.switches[1].summary()["reason"]
    assert reason == "the run goes on with 2 workers, before it had 3"
    assert found.counts[0].eq(1).all()
    assert found.counts[2].eq(1).all()
    assert 0 < found.counts[1].sum() < 20
