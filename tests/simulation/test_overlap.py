"""`overlap: backward` in virtual time: when parts are sent, by hand, and what does not change."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.faults.ledger import Ran, experiment
from tests.support.paths import SCRIPTS

from outpace.experiment.running import simulate

OVERLAP = {"overlap": "backward", "non_finite": "stop"}
TIMES: dict[str, Any] = {
    "task": {"kind": "timing", "parameters": 1000},  # 2000 bytes on each server: 0.1 s
    "workers": 1,
    "servers": 2,
    "compute": {"kind": "constant", "mean_s": 1.0},
    "network": {"bandwidth_bytes_per_s": 2e4},
    "sync": {"kind": "bsp"},
    "stop": {"iterations": 2},
}
DIGITS: dict[str, Any] = {
    **TIMES,
    "task": {"kind": "digits-mlp"},
    "workers": 3,
    "servers": 3,
    "compute": {"kind": "lognormal", "mean_s": 0.1, "cv": 0.4},
    "network": {"latency_s": 0.002, "bandwidth_bytes_per_s": 1e6},
    "stop": {"iterations": 6},
}
SCRIPT = {"kind": "script", "path": str(SCRIPTS / "trains.py"), "arguments": ["--epochs", "1"]}


def arrivals(result: Any) -> list[tuple[int, float]]:
    """Return server and time of each push, as servers have received them, in s."""
    found = [row for row in result.trace.to_pylist() if row["event"] == "push"]
    return sorted((row["shard"], row["start_ns"] / 1e9) for row in found)


def test_each_part_leaves_when_backward_has_made_it():
    # Forward takes 0.5 s. Server 1 has the second half of the parameters, which backward makes
    # until 0.75 s. Its push arrives at 0.85 s, that of server 0 at 1.1 s; the answer at 1.2 s.
    result = simulate({**TIMES, **OVERLAP, "forward_share": 0.5})
    expected = [(0, 1.1), (0, 2.3), (1, 0.85), (1, 2.05)]
    assert arrivals(result) == [(server, pytest.approx(at, abs=1e-8)) for server, at in expected]
    assert result.summary["virtual_time_s"] == pytest.approx(2.4, abs=1e-8)


@pytest.mark.parametrize("changes", [{}, {"network": None}], ids=["network", "no network"])
def test_bsp_ends_with_bitwise_the_same_parameters(changes):
    plain, overlapped = (simulate({**DIGITS, **changes, **more}) for more in ({}, OVERLAP))
    for key in ("parameters_digest", "gradients_applied", "messages", "bytes_sent", "train_loss"):
        assert overlapped.summary[key] == plain.summary[key]
    took, before = (run.summary["virtual_time_s"] for run in (overlapped, plain))
    # Without a network the last part decides, and it is complete when the computation ends.
    assert took == before if "network" in changes else took < before


def test_the_parts_of_a_script_leave_during_its_computation(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the script writes files
    base = {**DIGITS, "task": SCRIPT, "compute": TIMES["compute"], "stop": {"iterations": 1}}
    found = dict(arrivals(simulate({**base, **OVERLAP, "network": None, "workers": 1})))
    # 99 parameters on three servers: a third of backward, which takes 2/3 s, for each of them.
    assert found == pytest.approx({0: 1.0, 1: 7 / 9, 2: 5 / 9}, abs=1e-8)


@pytest.mark.parametrize("strategy", ["bsp", "asp", "ssp", "half of the servers"])
def test_no_gradient_counts_twice_if_workers_die_between_two_parts(strategy):
    # A part leaves about 0.03 s before the next one.
    faults = [{"at_s": 0.35 + 0.31 * n, "worker": n % 3} for n in range(6)]
    server = {"at_s": 2.1, "server": 1}
    given = experiment(strategy, {"schedule": [*faults, server]}, seed=2, **OVERLAP)
    found = Ran(given)
    assert set(found.counts.flatten().tolist()) <= {0.0, 1.0}
    assert found.recovery.restarts >= 7
    assert found.missing <= found.recovery.updates_lost + found.costs["worker_losses"]
