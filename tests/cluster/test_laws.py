"""Laws of the run times and links of simulated machines."""

import math
from itertools import islice

import numpy as np
import pytest

from outpace.cluster.faults import RandomFaults
from outpace.cluster.laws import Constant, Exponential, Lognormal, Normal, ShiftedExponential, Slow
from outpace.cluster.network import LinkLaw, NetworkLaw
from outpace.cluster.paths import Paths
from outpace.cluster.regimes import Regime, Regimes
from outpace.errors import ConfigError
from outpace.support.units import SECOND, seconds
from outpace.testing import check_law

N = 20_000
LAWS = [
    Constant(mean_s=0.2),
    Normal(mean_s=0.2, cv=0.3),
    Lognormal(mean_s=0.2, cv=0.5),
    Exponential(mean_s=0.2),
]
OTHERS = [
    ShiftedExponential(mean_s=0.2, shift_s=0.1),
    Regimes(mean_s=0.2, regimes=(Regime(1.0, 30.0), Regime(3.0, 10.0)), cv=0.1),
]


def run_times(law, seed=1, n=N, worker=0, workers=1):
    run_time = law.run_time(seed, workers)
    return np.array([run_time(worker, iteration, 0) for iteration in range(n)])


def test_factors_are_those_of_the_workers():
    law = Constant(mean_s=0.2, factors=(1.0, 2.5))
    assert [run_times(law, n=1, worker=n, workers=2)[0] for n in range(2)] == [0.2, 0.5]
    with pytest.raises(ConfigError, match="one for each of the 3 workers, not 2"):
        law.run_time(1, 3)


# -- distributions: five standard errors, from the laws' own moments -------------------


@pytest.mark.parametrize(
    ("law", "cv"),
    [
        (Normal(mean_s=0.2, cv=0.1), 0.1),
        (Lognormal(mean_s=0.2, cv=0.5), 0.5),
        (Exponential(mean_s=0.2), 1.0),
    ],
)
def test_run_times_have_the_mean_and_the_spread_of_their_law(law, cv):
    times = run_times(law)
    assert abs(times.mean() / law.mean_s - 1) < 5 * cv / math.sqrt(N)
    # The variance of a sample variance is (kurtosis - 1) sigma^4 / n.
    assert abs(times.var() / (cv * law.mean_s) ** 2 - 1) < 5 * math.sqrt((kurtosis(law) - 1) / N)
    assert times.min() >= 0


def kurtosis(law):
    """Fourth standardized moment."""
    if isinstance(law, Normal):
        return 3.0
    if isinstance(law, Exponential):
        return 9.0
    w = 1 + law.cv**2  # exp(sigma^2)
    return w**4 + 2 * w**3 + 3 * w**2 - 3


@pytest.mark.parametrize("law", [*LAWS, *OTHERS], ids=lambda law: law.kind)
def test_every_law_keeps_its_promises(law):
    check_law(law)


def test_times_between_failures_are_exponential():
    times = islice(RandomFaults(60.0).times(0, "failures of workers", 0), N)
    gaps = np.diff([0.0, *map(seconds, times)])
    assert gaps.mean() == pytest.approx(60.0, abs=4 * 60.0 / math.sqrt(N))
    assert gaps.std() == pytest.approx(60.0, rel=0.03)


# -- slow periods ------------------------------------------------------------------------


def test_a_slow_period_holds_for_what_starts_in_it():
    law = Constant(mean_s=1.0, slow=(Slow(workers=(1,), factor=3.0, from_s=2.0, until_s=4.0),))
    run_time = law.run_time(0, 2)
    at = [0, 2 * SECOND - 1, 2 * SECOND, 4 * SECOND - 1, 4 * SECOND]
    assert [run_time(1, 0, now) for now in at] == [1.0, 1.0, 3.0, 3.0, 1.0]
    assert {run_time(0, 0, now) for now in at} == {1.0}


def test_overlapping_slow_periods_multiply():
    slow = (
        Slow(workers=(0, 1), factor=2.0),
        Slow(workers=(1, 2), factor=5.0, from_s=1.0),
        Slow(workers=(1,), factor=0.5, from_s=1.0, until_s=2.0),
    )
    run_time = Constant(mean_s=1.0, slow=slow).run_time(0, 3)
    assert [run_time(worker, 0, 0) for worker in range(3)] == [2.0, 2.0, 1.0]
    assert [run_time(worker, 0, SECOND) for worker in range(3)] == [2.0, 5.0, 5.0]
    assert [run_time(worker, 0, 2 * SECOND) for worker in range(3)] == [2.0, 10.0, 5.0]


def test_a_slow_period_for_a_worker_that_is_not_there_is_refused():
    law = Constant(mean_s=1.0, slow=(Slow((4,), 2.0),))
    with pytest.raises(ConfigError, match=r"no worker 4; 4 workers are numbered 0 to 3"):
        law.run_time(0, 4)


# -- links -------------------------------------------------------------------------------


def test_a_nodes_link_overrides_what_it_names_and_nothing_else():
    law = NetworkLaw(
        latency_s=0.1,
        bandwidth_bytes_per_s=1e6,
        nodes={
            "far": LinkLaw(latency_s=0.5),
            "near": LinkLaw(latency_s=0.0),
            "thin": LinkLaw(bandwidth_bytes_per_s=10.0),
        },
    )
    paths = Paths(law)
    # The larger latency of the two ends counts, and the latency of `near` is the smallest.
    assert paths.latency("any", "other") == paths.latency("any", "near") == SECOND // 10
    assert paths.latency("any", "far") == SECOND // 2
    assert paths.latency("near", "near") == 0
    assert [paths.bandwidth(node) for node in ("any", "far", "near")] == [1e6] * 3
    assert paths.bandwidth("thin") == 10.0


REGIMES = (Regime(1.0, 30.0), Regime(3.0, 10.0), Regime(10.0, 20.0))


def test_nodes_are_in_each_regime_as_long_as_its_dwell_time_says():
    nodes, horizon_s = 400, 3000
    run_time = Regimes(mean_s=1.0, regimes=REGIMES).run_time(1, nodes)
    seen = [run_time(node, 0, t * SECOND) for node in range(nodes) for t in range(0, horizon_s, 50)]
    whole = sum(regime.dwell_s for regime in REGIMES)
    # Nodes are independent, looks 50 s apart nearly so: twice the standard error for this number.
    for regime in REGIMES:
        share = regime.dwell_s / whole
        error = 2 * math.sqrt(share * (1 - share) / len(seen))
        assert seen.count(regime.factor) / len(seen) == pytest.approx(share, abs=4 * error)


def test_workers_of_a_node_share_its_regime_and_the_order_of_asking_does_not_matter():
    law = Regimes(mean_s=2.0, regimes=REGIMES, workers_per_node=4)
    one, other = law.run_time(3, 10), law.run_time(3, 10)
    times = [t * SECOND for t in range(0, 500, 7)]
    forth = {(w, t): one(w, 0, t) for t in times for w in range(10)}
    back = {(w, t): other(w, 0, t) for t in reversed(times) for w in reversed(range(10))}
    assert forth == back
    for t in times:
        assert len({forth[w, t] for w in range(4)}) == len({forth[w, t] for w in (8, 9)}) == 1
    assert any(forth[0, t] != forth[4, t] for t in times)
    assert set(forth.values()) == {2.0, 6.0, 20.0}
