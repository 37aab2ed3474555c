"""Promises of every policy. A new policy joins by one line in CASES."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support.shard_driver import Driver

from outpace.config.reading import experiment_from, to_plain
from outpace.experiment.running import simulate
from outpace.sync import (
    POLICIES,
    Apply,
    Asp,
    Bsp,
    Buffer,
    Coin,
    CutOff,
    Draw,
    DropStragglers,
    Dsps,
    DynamicPssp,
    PartialPush,
    Policy,
    PspSampling,
    Pssp,
    Scale,
    Ssp,
)
from outpace.sync.observer import Outcome


@dataclass(frozen=True)
class Case:
    """A policy and what it promises: no pull of iteration i is answered unless i < V + bound."""

    policy: Policy
    bound: int | None


CASES = [
    Case(Bsp(), bound=0),
    Case(Bsp(buffer=Buffer.SOFT), bound=0),
    Case(Bsp(apply=Apply.ON_ARRIVAL), bound=0),
    Case(Asp(), bound=None),
    Case(Asp(apply=Apply.ON_ADVANCE), bound=None),
    Case(Ssp(0), bound=0),
    Case(Ssp(3), bound=3),
    Case(Ssp(3, buffer=Buffer.SOFT), bound=3),
    Case(Ssp(1, apply=Apply.ON_ADVANCE), bound=1),
    Case(Pssp(2, 0.0), bound=None),
    Case(Pssp(2, 0.5), bound=None),
    Case(Pssp(2, 0.7, coin=Coin.SERVER, buffer=Buffer.SOFT), bound=None),
    Case(Pssp(2, 0.7, draw=Draw.LEAD), bound=None),
    Case(Pssp(2, 1.0, draw=Draw.LEAD, buffer=Buffer.SOFT), bound=2),
    Case(Pssp(2, 1.0), bound=2),
    Case(Pssp(2, 1.0, buffer=Buffer.SOFT), bound=2),
    Case(DynamicPssp(1), bound=None),
    Case(DynamicPssp(1, alpha="significance", buffer=Buffer.SOFT), bound=None),
    Case(Dsps(1, extra=3), bound=4),
    Case(Dsps(2, extra=0), bound=2),
    Case(Dsps(1, extra=2, buffer=Buffer.SOFT), bound=3),
    Case(DropStragglers(2), bound=0),
    Case(PartialPush(2), bound=0),
    Case(PartialPush(2, timeout_s=3e-9), bound=0),  # the suite's clock counts nanoseconds
    Case(PspSampling(0), bound=None),
    Case(PspSampling(1), bound=None),
    Case(PspSampling(2, staleness=2), bound=None),
    Case(PspSampling(4, staleness=1), bound=1),  # all others, however many
    Case(CutOff(), bound=0),
]
every_policy = pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.policy))

# What may happen next: which of the free workers, and what it does.
ACTIONS = st.lists(
    st.tuples(
        st.integers(0, 10**6),
        st.sampled_from(
            ["step"] * 6 + ["abstain", "withhold", "skip", "no pull", "repeat", "leave"]
        ),
    ),
    max_size=60,
)


def summed(policy: Policy) -> Policy:
    """Return the policy with plain sums, so that applied gradients can be read off."""
    return dataclasses.replace(policy, scale=Scale.SUM)


def play(driver: Driver, actions: list[tuple[int, str]]) -> None:
    for pick, action in actions:
        free = driver.free()
        if not free:
            return
        worker = free[pick % len(free)]
        if action == "leave" and len(driver.gone) < driver.workers - 1:
            driver.leave(worker)
        elif action == "repeat":
            driver.repeat(pick % driver.workers)
        else:
            driver.step(
                worker,
                abstain=action == "abstain",
                withhold=action == "withhold",
                skip=2 * (action == "skip"),
                pull=action != "no pull",
            )


def finish(driver: Driver) -> None:
    """Let whoever is free continue until everybody has left."""
    last = max(driver.iteration) + 3
    while (free := driver.free()) or driver.wait():
        if not free:
            continue
        worker = min(free, key=lambda n: driver.iteration[n])
        if driver.iteration[worker] >= last:
            driver.leave(worker)
        else:
            driver.step(worker)


def test_every_policy_is_in_the_suite():
    assert {case.policy.kind for case in CASES} == set(POLICIES)


@every_policy
@given(workers=st.integers(1, 5), actions=ACTIONS)
def test_every_pull_is_answered_once_its_condition_can_hold(case, workers, actions):
    driver = Driver(case.policy, workers)
    play(driver, actions)
    finish(driver)
    assert not driver.waiting
    assert len(driver.gone) == workers
    assert driver.shard.describe_waiting() == ""


@every_policy
@given(workers=st.integers(1, 5), actions=ACTIONS)
def test_no_worker_is_answered_beyond_the_bound(case, workers, actions):
    driver = Driver(case.policy, workers)
    play(driver, actions)
    for reply in driver.replies:
        if case.bound is not None:
            assert reply.iteration < reply.clock + case.bound


@every_policy
@given(
    workers=st.integers(1, 5),
    steps=st.integers(1, 6),
    picks=st.lists(st.integers(0, 10**6), max_size=40),
)
def test_workers_that_meet_outside_of_the_strategy_all_get_there(case, workers, steps, picks):
    """Each takes `steps` steps of its own, whatever their numbers are, and then waits for all.

    In any order: the next of the workers that can continue, and the next of those that come back.
    """
    driver, taken = Driver(case.policy, workers), [0] * workers
    order = iter(picks)
    for _ in range(2):
        while len(driver.paused) < workers:
            free = driver.free()
            if not free:
                assert driver.wait(), "the workers that wait for parameters will never have them"
                continue
            worker = free[next(order, 0) % len(free)]
            if taken[worker] == steps:
                driver.pause(worker)
                taken[worker] = 0
            else:
                driver.step(worker)
                taken[worker] += 1
        while driver.paused:
            back = sorted(driver.paused)
            driver.resume(back[next(order, 0) % len(back)])
    finish(driver)
    assert driver.shard.describe_waiting() == ""
    if case.bound is not None:
        assert all(reply.iteration < reply.clock + case.bound for reply in driver.replies)


@every_policy
@given(workers=st.integers(1, 5), actions=ACTIONS)
def test_every_gradient_is_applied_exactly_once(case, workers, actions):
    driver = Driver(summed(case.policy), workers)
    play(driver, actions)
    finish(driver)
    driver.shard.close(driver.now)
    outcomes = [entry for entry in driver.account.settled if entry[2] is not Outcome.REPEATED]
    without = (Outcome.ABSTAINED, Outcome.SKIPPED)
    fates = [(w, i) for w, i, outcome, _ in outcomes if outcome not in without]
    assert sorted(fates) == sorted(driver.pushed), "nothing lost, nothing twice"
    skipped = [(w, i) for w, i, outcome, _ in outcomes if outcome is Outcome.SKIPPED]
    assert sorted(skipped) == sorted(driver.withheld)
    expected = torch.zeros(driver.size, dtype=torch.float64)
    for worker, iteration in driver.applied():
        expected -= driver.gradient(worker, iteration)
    assert torch.equal(driver.shard.read(), expected)


@every_policy
def test_a_policy_is_frozen_and_survives_yaml(case):
    assert dataclasses.is_dataclass(case.policy)
    with pytest.raises((dataclasses.FrozenInstanceError, AttributeError, TypeError)):
        case.policy.kind = "other"
    plain = {
        "task": {"kind": "timing"},
        "workers": 5,
        "compute": {"kind": "constant", "mean_s": 1.0},
        "stop": {"iterations": 1},
        "sync": dataclasses.asdict(case.policy),
    }
    experiment = experiment_from(plain, "test")
    assert experiment.sync == case.policy
    assert experiment_from(to_plain(experiment), "test") == experiment


@every_policy
@pytest.mark.parametrize("tie_seed", [None, 1])
def test_no_policy_deadlocks_and_everyone_finishes(case, tie_seed):
    servers = 3
    result = simulate(
        {
            "task": {"kind": "timing", "parameters": 3000},
            "workers": 5,
            "servers": servers,
            "compute": {"kind": "constant", "mean_s": 0.1, "worker_cv": 0.3},
            "network": {"latency_s": 0.01, "bandwidth_bytes_per_s": 1e6},
            "sync": dataclasses.asdict(case.policy),
            "stop": {"iterations": 12},
        },
        tie_seed=tie_seed,
    )
    assert result.summary["status"] == "complete"
    iterations, summary = sum(result.summary["iterations"]), result.summary
    has_quorum = hasattr(case.policy, "quorum")
    if not has_quorum:  # then nobody is dropped, and nobody skips
        assert summary["iterations"] == [12] * 5
        assert summary["gradients_dropped"] == 0
    assert max(summary["iterations"]) == 12
    assert summary["gradients_applied"] + summary["gradients_dropped"] == iterations
    own = iterations + 12 * servers if isinstance(case.policy, CutOff) else 0
    assert summary["messages"] == 3 * iterations * servers + own
