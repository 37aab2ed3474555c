"""A global barrier: it has the same results as a barrier per server, and it takes longer."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.support.fluentps import behind_barrier
from tests.support.runtimes import (
    ITERATIONS,
    SERVERS,
    SYNCS,
    WORKERS,
    config,
    every_runtime,
    rows,
    runs,
)

from outpace.config.reading import experiment_from
from outpace.engine.losses import rules_about_losses
from outpace.experiment.running import simulate
from outpace.kernel import Kernel
from outpace.real.coordinator.run_state import RunState
from outpace.real.coordinator.with_servers import WithServers
from outpace.real.net.clock import RealClock
from outpace.real.net.messages import Ready
from outpace.real.process.launcher import Launcher
from outpace.record.trace import TraceRows
from outpace.sync.membership.decide import Membership
from outpace.sync.messages import SCHEDULER, Pull, Push

every_run = runs(["bsp", "ssp"], for_real=["bsp"])
GLOBAL = {"sync": behind_barrier()}


def behind(sync, **changes):
    """Return the configuration of a strategy of the suite behind a global barrier."""
    return config(sync, **changes) | {"sync": behind_barrier(**SYNCS[sync])}


@cache
def outcome(run, sync):
    return run(behind(sync, deterministic=True))


@every_run
def test_the_scheduler_judges_every_iteration_once_and_servers_answer_at_once(run, sync):
    result = outcome(run, sync)
    iterations = {(w, i) for w in range(WORKERS) for i in range(ITERATIONS)}
    pulls = defaultdict(list)
    for row in rows(result, "pull"):
        pulls[row["shard"]].append((row["worker"], row["iteration"]))
        if row["shard"] < SERVERS:
            assert row["released_by"] is None
            assert row["start_ns"] == row["end_ns"]
    assert pulls.keys() == set(range(SERVERS + 1))
    assert all(sorted(seen) == sorted(iterations) for seen in pulls.values())
    pushes = Counter(row["shard"] for row in rows(result, "push"))
    assert pushes == dict.fromkeys(range(SERVERS), len(iterations))
    assert result.summary["gradients_applied"] == len(iterations)
    # Per iteration: push, acknowledgement, pull, reply with each server; a report, a pull
    # and the answer with the scheduler.
    assert result.summary["messages"] == (4 * SERVERS + 3) * len(iterations)


@every_runtime
def test_bsp_reaches_bitwise_the_parameters_of_a_barrier_per_server(run):
    result, expected = outcome(run, "bsp"), simulate(config("bsp"))
    assert result.summary["parameters_digest"] == expected.summary["parameters_digest"]
    for name, value in expected.parameters.items():
        assert torch.equal(result.parameters[name], value)


def test_the_messages_of_the_barrier_take_their_time():
    # Compute 1 s; push, acknowledgement, report, answer, pull and reply 10 ms each.
    timing = {
        "task": {"kind": "timing", "parameters": 100},
        "workers": 3,
        "servers": 2,
        "compute": {"kind": "constant", "mean_s": 1.0},
        "network": {"latency_s": 0.01},
        "sync": {"kind": "bsp"},
        "stop": {"iterations": 10},
    }
    assert simulate({**timing, **GLOBAL}).summary["virtual_time_s"] == pytest.approx(10 * 1.06)
    assert simulate(timing).summary["virtual_time_s"] == pytest.approx(10 * 1.02)


@pytest.mark.parametrize("sync", ["bsp", "asp", "ssp", "ssp-soft", "ssp-on-advance"])
@pytest.mark.parametrize("tie_seed", [None, 1])
def test_every_strategy_ends_behind_a_global_barrier(sync, tie_seed):
    law = {"kind": "exponential", "mean_s": 0.001}
    costs = {"push_time": law, "pull_time": law}
    result = simulate(behind(sync, **costs), tie_seed=tie_seed)
    assert result.summary["gradients_applied"] == WORKERS * ITERATIONS


class Listening:
    """Replaces the coordinator's listener for the scheduler."""

    def __init__(self):
        self.refusals, self.sent, self.when_refused = [], [], []

    def refuse(self, name, reason):
        self.refusals.append((name, reason))
        for call in self.when_refused:
            call(name)

    def send(self, name, message):
        self.sent.append((name, message.iteration))


def test_a_worker_that_misbehaves_at_the_scheduler_is_refused_and_the_others_go_on():
    kernel, listening = Kernel(), Listening()
    experiment = experiment_from(behind("ssp"), "test")
    rows_taken = []
    setting: Any = SimpleNamespace(
        experiment=experiment,
        members=Membership(rules_about_losses(experiment, 120.0), [SCHEDULER]),
        resume=None,
        saving=None,
        rule=None,
        trace=TraceRows(rows_taken.append),
        evaluate=lambda *_: None,
        log=lambda _: None,
    )
    scheduler = WithServers(RunState(setting, RealClock(), kernel, listening, Launcher()))
    scheduler.start()
    assert not scheduler.take("worker-0", Ready()), "that is for somebody else"
    for name, message, why in [
        ("worker-1", Push(0, 0, 0, coin=0.5), "speaks for worker 0"),
        ("server-0", Pull(0, 0, 0.5), "speaks for worker 0"),
        ("worker-2", Push(2, 0, 7, coin=0.5), "says that it read version 7"),
    ]:
        assert scheduler.take(name, message)
        kernel.run(until=0)
        assert [reason for who, reason in listening.refusals if who == name and why in reason]
    for iteration in range(2):
        scheduler.take("worker-3", Push(3, iteration, 0, coin=0.5))
        kernel.run(until=0)
    assert listening.sent == [("worker-3", 0), ("worker-3", 1)]  # within the bound
    scheduler.take("worker-3", Push(3, 2, 0, coin=0.5))
    kernel.run(until=0)
    scheduler.take("worker-3", Push(3, 3, 0, coin=0.5))  # the last is not answered
    assert any(
        who == "worker-3" and "without waiting for a reply" in why
        for who, why in listening.refusals
    )
    kernel.close()
    scheduler.close()


@pytest.mark.parametrize("key", [None, "push_time", "pull_time"])
def test_no_server_answers_before_it_has_done_what_the_scheduler_waited_for(key):
    """With a timeout, the servers' timeouts may end at the same time as the scheduler's."""
    changes = {} if key is None else {key: {"kind": "constant", "mean_s": 0.1}}
    for seed in range(4):
        result = simulate(
            {
                "task": {"kind": "timing", "parameters": 1000},
                "seed": seed,
                "workers": 5,
                "servers": 2,
                "compute": {"kind": "normal", "mean_s": 1.0, "cv": 0.5},
                "sync": behind_barrier("partial-push", quorum=2, timeout_s=0.5),
                "stop": {"iterations": 15},
                **changes,
            }
        )
        assert all(row["iteration"] < row["clock"] for row in rows(result, "pull"))
