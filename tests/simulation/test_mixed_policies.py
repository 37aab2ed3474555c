"""Servers with different policies in one run: every worker finishes."""

from __future__ import annotations

import random

import pytest
from tests.support.runtimes import SYNCS, rows

from outpace.experiment.running import simulate

WORKERS = 4
EVERY = [*SYNCS.values(), {"kind": "dynamic-pssp", "staleness": 1, "alpha": "significance"}]


def configuration(chance: random.Random):
    servers = chance.randint(2, 4)
    syncs = lambda: [chance.choice(EVERY) for _ in range(servers)]  # noqa: E731
    late = {"probability": 0.2, "seconds": 0.4}
    kinds = chance.sample(["push", "pull", "reply"], chance.randint(0, 3))
    delays = [{"message": kind, **late} for kind in kinds]
    ahead = {"quorum_percent": chance.choice([1, 50, 100]), "timeout_s": 0.03, "ahead": 3}
    slow = [{"workers": [0], "factor": chance.choice([1.0, 2.0, 7.0])}]
    return {
        "task": {"kind": "timing", "parameters": 1000},
        "workers": WORKERS,
        "servers": servers,
        "compute": {"kind": "lognormal", "mean_s": 0.1, "cv": chance.choice([0, 1]), "slow": slow},
        "network": {"latency_s": 0.01, "bandwidth_bytes_per_s": 1e6, "delays": delays},
        "sync": syncs(),
        "sync_changes": [{"at_s": at_s, "sync": syncs()} for at_s in (0.2, 0.7)],
        "pull_time": {"kind": "constant", "mean_s": 0.003},
        "stop": {"iterations": chance.randint(1, 12)},
        **chance.choice([{}, {"pull": ahead}]),
    }


@pytest.mark.filterwarnings("ignore:.*the rule of dsps expects it:outpace.errors.OutpaceWarning")
@pytest.mark.parametrize("seed", range(25))
def test_every_worker_finishes_whatever_the_servers_follow(seed):
    config = configuration(random.Random(seed))
    result = simulate(config)  # a deadlock raises
    iterations = config["stop"]["iterations"]
    work = {(row["worker"], row["iteration"]) for row in rows(result, "iteration")}
    assert len(work) == sum(result.summary["iterations"])
    # A worker has done the last iteration; others may have skipped it.
    assert max(iteration for _, iteration in work) == iterations - 1
    for event in ("push", "pull"):
        assert len(rows(result, event)) == len(work) * config["servers"]
    assert {row["outcome"] for row in rows(result, "push")} <= {"applied", "dropped", "pending"}
    if "quorum" not in str([config["sync"], config["sync_changes"]]):
        assert result.summary["iterations"] == [iterations] * WORKERS
        assert result.summary["gradients_dropped"] == 0
