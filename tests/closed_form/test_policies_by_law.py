"""Policies that must coincide are compared with each other, others with numbers by hand."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from outpace.experiment.running import simulate
from outpace.support.randomness import RandomStream
from outpace.sync import Coin, DynamicPssp, Pssp
from outpace.sync.messages import Pull
from outpace.sync.policies.coins import coin_of, sample_of
from outpace.sync.shard import View

WORKERS, SERVERS, ITERATIONS = 5, 2, 25
CHANCE = 1e-4  # probability of a failure by chance with another seed


def outcome(sync):
    """Run with real gradients, and with messages that need time, so updates overtake each other."""
    return simulate(
        {
            "task": {"kind": "quadratic", "eigenvalues": [1.0, 0.5, 0.1], "noise": 0.1},
            "workers": WORKERS,
            "servers": SERVERS,
            "compute": {"kind": "lognormal", "mean_s": 0.1, "cv": 0.4, "worker_cv": 0.3},
            "network": {"latency_s": 0.01},
            "sync": sync,
            "optimizer": {"lr": 0.05},
            "stop": {"iterations": ITERATIONS},
        }
    )


def events(result):
    """Return all events and their times, without the order of ties and the policies' names."""
    return sorted(result.trace.drop_columns(["reason", "lead", "bound"]).to_pylist(), key=str)


def ssp(buffer, staleness=2):
    return {"kind": "ssp", "staleness": staleness, "buffer": buffer}


ASP, BSP = {"kind": "asp"}, {"kind": "bsp"}
# This many gradients never arrive within the window.
SAME = [
    *(
        pair
        for buffer in ("lazy", "soft")
        for coin in ("worker", "server")
        for pair in (
            ({**ssp(buffer), "kind": "pssp", "block_probability": 0.0, "coin": coin}, ASP),
            ({**ssp(buffer), "kind": "pssp", "block_probability": 1.0, "coin": coin}, ssp(buffer)),
        )
    ),
    ({"kind": "dynamic-pssp", "staleness": 1, "alpha": 0.0}, ASP),
    ({"kind": "dsps", "staleness": 2, "extra": 0, "buffer": "lazy"}, ssp("lazy")),
    ({"kind": "dsps", "staleness": 2, "extra": 0, "buffer": "soft"}, ssp("soft")),
    ({"kind": "psp-sampling", "sample": 0, "staleness": 1}, ASP),
    ({"kind": "psp-sampling", "sample": WORKERS - 1, "staleness": 2}, ssp("soft")),
    ({"kind": "psp-sampling", "sample": WORKERS - 1}, ssp("soft", 0)),
    ({"kind": "drop-stragglers", "quorum": WORKERS}, BSP),
    (
        {"kind": "partial-push", "quorum": 3, "timeout_s": 0.0},
        {"kind": "drop-stragglers", "quorum": 3},
    ),
    ({"kind": "partial-push", "quorum": 3, "timeout_s": 1e6}, BSP),
]


@pytest.mark.parametrize(("special", "ordinary"), SAME, ids=[str(pair[0]) for pair in SAME])
def test_at_its_limit_a_policy_is_another_one_run_for_run(special, ordinary):
    found, expected = outcome(special), outcome(ordinary)
    assert found.summary["parameters_digest"] == expected.summary["parameters_digest"]
    assert events(found) == events(expected)


# -- who is held, and how often ------------------------------------------------------------


def pulls(count: int, iteration: int, worker: int = 1) -> list[Pull]:
    coins = RandomStream(11, "coin", worker, lambda source, n: source.random(n))
    return [Pull(worker, iteration, coins[n]) for n in range(count)]


def within_four_errors(hits: int, trials: int, probability: float) -> bool:
    error = math.sqrt(trials * probability * (1 - probability))
    return abs(hits - trials * probability) <= 4 * error


@pytest.mark.parametrize("probability", [0.05, 0.3])
def test_servers_with_coins_of_their_own_hold_independently(probability):
    policy, trials, servers = Pssp(2, probability, coin=Coin.SERVER), 20_000, 4
    views = [View(server, 2) for server in range(servers)]
    held = np.array(
        [
            [policy.may_answer(pull, view).release_clock is not None for view in views]
            for pull in pulls(trials, 5)
        ]
    )
    assert within_four_errors(held.any(axis=1).sum(), trials, 1 - (1 - probability) ** servers)
    for one, other in itertools.combinations(range(servers), 2):
        assert within_four_errors((held[:, one] & held[:, other]).sum(), trials, probability**2)


@pytest.mark.parametrize("coin", Coin)
@pytest.mark.parametrize("alpha", [1.0, 0.4])
@pytest.mark.parametrize("lead", range(2, 9))
def test_the_dynamic_probability_is_that_of_the_paper(lead, alpha, coin):
    """P(s, k) = α / (1 + e^(s−k)) for k ≥ s = 3, else 0 (FluentPS, table III)."""
    policy, trials, view = DynamicPssp(3, alpha, coin=coin), 20_000, View(7, 2)
    held = sum(
        policy.may_answer(pull, view).release_clock is not None for pull in pulls(trials, lead)
    )
    probability = alpha / (1 + math.exp(3 - lead)) if lead >= 3 else 0.0
    assert within_four_errors(held, trials, probability)


# -- numbers that are derived ----------------------------------------------------------------


@pytest.mark.parametrize("puller", [0, 3, 6])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_each_set_of_other_workers_is_sampled_equally_often(puller, size):
    workers, trials = 7, 12_000
    others = [worker for worker in range(workers) if worker != puller]
    seen = Counter()
    for pull in pulls(trials, 0, worker=puller):
        sample = sample_of(pull, size, workers)
        assert len(set(sample)) == len(sample) == size
        seen[frozenset(sample)] += 1
    sets = [frozenset(each) for each in itertools.combinations(others, size)]
    assert set(seen) <= set(sets)
    assert stats.chisquare([seen[each] for each in sets]).pvalue > CHANCE


def test_coins_are_the_published_numbers_of_splitmix64():
    """The generator's first three numbers from the state 1234567, of which a coin has 53 bits."""
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    coins = [coin_of(Pull(0, 0, coin=1234567 * 2.0**-53), server) for server in range(3)]
    assert coins == [(number >> 11) * 2.0**-53 for number in published]


# -- partial push, by hand ----------------------------------------------------------------------


def partial_push(timeout_s, factors, iterations=6, quorum=2, **changes):
    """Run workers that need 1 s times their factor; nothing else takes time."""
    slow = [{"workers": [worker], "factor": factor} for worker, factor in factors.items()]
    return simulate(
        {
            "task": {"kind": "timing", "parameters": 100},
            "workers": 4,
            "compute": {"kind": "constant", "mean_s": 1.0, "slow": slow},
            "sync": {"kind": "partial-push", "quorum": quorum, "timeout_s": timeout_s},
            "stop": {"iterations": iterations},
            **changes,
        }
    ).trace.to_pylist()


def of(trace, event, worker):
    return [row for row in trace if row["event"] == event and row["worker"] == worker]


def ends(trace, worker):
    return [(row["iteration"], row["end_ns"] / 1e9) for row in of(trace, "iteration", worker)]


def outcomes(trace, worker):
    return [row["outcome"] for row in of(trace, "push", worker)]


def test_a_worker_that_comes_within_the_timeout_takes_part():
    trace = partial_push(0.5, {2: 1.4, 3: 5.0})
    for worker in (0, 1, 2):  # the clock advances half a second after the second push
        assert ends(trace, worker) == [(i, 1.5 * (i + 1)) for i in range(6)]
        assert outcomes(trace, worker) == ["applied"] * 6
    # At 5 s iterations 0, 1, 2 are finished; it continues with 3, which comes at 10 s.
    assert ends(trace, 3) == [(0, 5.0), (3, 10.0)]
    assert outcomes(trace, 3) == ["dropped"] * 2


def test_the_timeout_counts_from_the_quorum_of_each_iteration():
    """Quorum 3: the third comes at 1.4 s, and the clock advances 0.5 s after that."""
    trace = partial_push(0.5, {2: 1.4, 3: 5.0}, iterations=3, quorum=3)
    assert ends(trace, 0) == [(i, pytest.approx(1.9 * (i + 1))) for i in range(3)]
