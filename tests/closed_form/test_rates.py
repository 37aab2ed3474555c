"""Rates and staleness against closed forms, over a window of virtual time.

Every tolerance is a multiple of a standard error, which is stated at its use; the windows are so
long that it is a few percent.
"""

from __future__ import annotations

import math

import pytest

from outpace.experiment.running import simulate

WITHIN = 4.0  # standard errors


def run(sync, *, workers, compute, until_s, seed=1, servers=1, network=None):
    return simulate(
        {
            "seed": seed,
            "task": {"kind": "timing", "parameters": 100},
            "workers": workers,
            "servers": servers,
            "compute": compute,
            "network": network,
            "sync": sync,
            "stop": {"virtual_time_s": until_s},
        }
    ).summary


@pytest.mark.parametrize("workers", [1, 2, 8, 32])
@pytest.mark.parametrize("servers", [1, 3])
def test_bsp_with_exponential_run_times_takes_the_harmonic_number(workers, servers):
    mean_s, until_s = 0.5, 1000.0
    summary = run(
        {"kind": "bsp"},
        workers=workers,
        servers=servers,
        compute={"kind": "exponential", "mean_s": mean_s},
        until_s=until_s,
    )
    # An iteration lasts as long as the largest of N exponentials: mean H_N/μ, variance the sum of
    # 1/(kμ)². This gives the number of iterations in the window (renewal theory).
    expected = mean_s * sum(1 / k for k in range(1, workers + 1))
    deviation = mean_s * math.sqrt(sum(1 / k**2 for k in range(1, workers + 1)))
    iterations = summary["gradients_applied"] / workers
    error = deviation / math.sqrt(iterations)
    assert until_s / iterations == pytest.approx(expected, abs=WITHIN * error + until_s / 1e6)
    assert summary["staleness"]["max"] == 0


@pytest.mark.parametrize("staleness", [0, 1, 3, 10])
def test_soft_ssp_with_two_exponential_workers_matches_its_markov_chain(staleness):
    rate, until_s = 2.0, 2000.0
    summary = run(
        {"kind": "ssp", "staleness": staleness, "buffer": "soft"},
        workers=2,
        compute={"kind": "exponential", "mean_s": 1 / rate},
        until_s=until_s,
    )
    # The lead walks on −(s+1) .. s+1, uniformly; at both ends one of the two waits.
    expected = 2 * rate * (2 * staleness + 2) / (2 * staleness + 3)
    # The count's variance is at most that of a Poisson process of the same rate.
    error = math.sqrt(expected / until_s)
    assert summary["gradients_applied"] / until_s == pytest.approx(expected, abs=WITHIN * error)


@pytest.mark.parametrize("workers", [1, 4, 16])
@pytest.mark.parametrize(
    "compute",
    [
        {"kind": "exponential", "mean_s": 1.0},
        {"kind": "lognormal", "mean_s": 1.0, "cv": 0.3},
        {"kind": "normal", "mean_s": 1.0, "cv": 0.1, "worker_cv": 0.3},
    ],
    ids=lambda law: law["kind"],
)
def test_asp_is_on_average_as_stale_as_it_has_other_workers(workers, compute):
    summary = run({"kind": "asp"}, workers=workers, compute=compute, until_s=1000.0)
    # Each update of another worker lies in exactly one of my read-to-push windows. So the mean is
    # N−1, except for the windows that are open at the end: at most N−1 windows of at most max
    # staleness updates.
    edge = workers * summary["staleness"]["max"] / summary["gradients_applied"]
    assert summary["staleness"]["mean"] == pytest.approx(workers - 1, abs=edge)
