"""Calibration recovers the laws that data were drawn from."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from outpace.cluster.calibration.all_reduces import assumed_all_reduce
from outpace.cluster.calibration.factors import server_factors, shrunk_factors
from outpace.cluster.calibration.requests import Requests
from outpace.cluster.calibration.run_times import (
    ASSUMED_CV,
    Recording,
    fit_run_times,
    warm_up_of,
)
from outpace.cluster.laws import (
    Constant,
    Errors,
    Exponential,
    Lognormal,
    Normal,
    ShiftedExponential,
)
from outpace.cluster.network import LinkLaw, NetworkLaw
from outpace.support.estimates import next_of
from outpace.support.units import nanoseconds

WORKERS, ITERATIONS = 4, 400
N = WORKERS * ITERATIONS
WITHIN = 4.0  # standard errors
FACTORS = (0.8, 1.0, 1.2, 1.0)


def recorded(law, iterations=ITERATIONS, seed=1):
    """Run times of workers that never wait."""
    run_time = law.run_time(seed, WORKERS)
    starts, seconds = np.zeros((2, iterations, WORKERS))
    for worker in range(WORKERS):
        now = 0.0
        for iteration in range(iterations):
            starts[iteration, worker] = now
            seconds[iteration, worker] = run_time(worker, iteration, nanoseconds(now))
            now += seconds[iteration, worker]
    return Recording(starts, seconds)


@pytest.mark.parametrize(
    ("law", "cv"),
    [
        (Constant(mean_s=0.1), 0.0),
        (Constant(mean_s=0.1, factors=FACTORS), 0.0),
        (Normal(mean_s=0.1, cv=0.1), 0.1),
        (Normal(mean_s=0.1, cv=0.1, factors=FACTORS), 0.1),
        (Lognormal(mean_s=0.1, cv=0.4), 0.4),
        (Lognormal(mean_s=0.1, cv=0.4, factors=FACTORS), 0.4),
        (Exponential(mean_s=0.1), 1.0),
        (ShiftedExponential(mean_s=0.05, shift_s=0.1, factors=FACTORS), 1 / 3),
    ],
)
def test_a_law_and_the_factors_of_workers_are_recovered(law, cv):
    found = fit_run_times([recorded(law)]).law
    assert type(found) is type(law)
    # Standard errors: of a mean cv/√n, of a standard deviation about 1/√(2n) for a normal law and
    # √((kurtosis - 1)/(4n)) in general; the kurtosis of the log-normal law with cv 0.4 is 6.3.
    assert found.mean_s == pytest.approx(law.mean_s, rel=1e-6 + 3 * WITHIN * cv / math.sqrt(N))
    if hasattr(law, "cv"):
        assert found.cv == pytest.approx(law.cv, rel=WITHIN * math.sqrt(5.3 / (4 * N)))
    of_worker = WITHIN * cv / math.sqrt(ITERATIONS)
    if hasattr(law, "shift_s"):  # the smallest time over the factor of its worker
        assert found.shift_s == pytest.approx(law.shift_s, rel=of_worker)
    factors = found.factors or (1.0,) * WORKERS
    assert factors == pytest.approx(law.factors or (1.0,) * WORKERS, rel=1e-6 + of_worker)


def test_factors_are_shrunk_by_the_share_of_their_spread_that_is_chance():
    # Weights 1/0.05² = 400, Q = 2 · 400 · 0.1² = 8: tau² = (8 - 1) / (800 - 400) = 0.0175, and
    # B = 0.0175 / (0.0175 + 0.0025) = 0.875.
    found = shrunk_factors(np.array([-0.1, 0.1]), np.array([0.05, 0.05]))
    raw = np.exp([-0.0875, 0.0875])
    assert found.values == pytest.approx(raw / raw.mean())
    assert found.errors == pytest.approx([0.05 * math.sqrt(0.875)] * 2)
    assert found.parameters == pytest.approx(0.875)
    # Q = 2 · 400 · 0.03² = 0.72 < 1: explained by chance.
    alike = shrunk_factors(np.array([-0.03, 0.03]), np.array([0.05, 0.05]))
    assert alike.values == pytest.approx([1.0, 1.0])
    assert alike.rounded == ()


def test_a_law_is_drawn_within_its_errors():
    errors = Errors(mean_s=0.02, cv=0.05, factors=(0.1, 0.0, 0.0, 0.0))
    law = Lognormal(mean_s=0.1, cv=0.4, factors=FACTORS, errors=errors)
    drawn = [law.drawn(seed) for seed in range(400)]
    logs = np.log([(each.mean_s / 0.1, each.cv / 0.4, each.factors[0] / 0.8) for each in drawn])
    # A standard deviation of 400 numbers has an error of 1/√800.
    assert logs.std(axis=0) == pytest.approx([0.02, 0.05, 0.1], rel=WITHIN / math.sqrt(800))
    assert drawn[0].factors[1:] == FACTORS[1:]
    assert (drawn[0].errors, law.drawn(3)) == (None, drawn[3])
    assert law.run_time(3, 4)(0, 0, 0) == drawn[3].run_time(3, 4)(0, 0, 0)


@pytest.mark.parametrize(("runs", "speed_cv"), [(1, 0.015), (3, 0.02)])
def test_intervals_hold_a_further_run_of_a_machine_whose_speed_changes_from_run_to_run(
    runs, speed_cv
):
    # Without the spread from run to run 90 % intervals held half of the further runs.
    held, clusters, iterations = [], 60, 100
    for number in range(clusters):
        source = np.random.default_rng(number)

        def run(source=source):
            draws = 0.1 * Lognormal(mean_s=0.1, cv=0.1).shape()(source, iterations * WORKERS)
            seconds = math.exp(speed_cv * source.normal()) * draws.reshape(iterations, WORKERS)
            return Recording(np.cumsum(seconds, axis=0) - seconds, seconds)

        fit = fit_run_times([run() for _ in range(runs)], assumed_cv=ASSUMED_CV)
        if fit.law is None:
            continue  # by chance no law describes these times
        law = replace(fit.law, errors=fit.errors)
        times = [law.run_time(seed, WORKERS) for seed in range(20)]
        totals = [sum(time(0, n, 0) for n in range(iterations)) for time in times]
        predicted = next_of(totals)
        held.append(predicted.low <= run().seconds[:, 0].sum() <= predicted.high)
    assert len(held) > 0.9 * clusters
    assert 0.80 <= np.mean(held) <= 0.98


def test_a_law_that_misses_one_worker_is_not_taken():
    # Worker 3 always takes the median time of the others: half of a law's times are shorter. This
    # is an eighth of that in the distance of all times, 0.06, which would be accepted.
    draws = np.random.default_rng(1).lognormal(-2.0, 0.3, (ITERATIONS, 8))
    draws[:, 3] = math.exp(-2.0)
    fit = fit_run_times([Recording(np.cumsum(draws, axis=0) - draws, draws)])
    assert fit.law is None
    assert fit.goodness.distance < 0.08
    assert fit.goodness.of_worker[3] == pytest.approx(0.5, abs=0.1)
    assert any("of worker 3's times" in reason for reason in fit.reasons), fit.reasons


def test_the_first_iterations_are_left_out_where_they_differ():
    seconds = recorded(Normal(mean_s=0.1, cv=0.05)).seconds
    assert warm_up_of(seconds) == 0
    seconds[:3] *= [[9.0], [3.0], [2.0]]
    assert warm_up_of(seconds) == 3


# -- network: exact lines, and 10 % of noise ------------------------------------------

# -- requests ------------------------------------------------------------------------


def requests(rows):
    """rows: three numbers; received after, received, begun, done, released, answered."""
    columns = [np.array(column, dtype=np.float64) for column in zip(*rows, strict=True)]
    worker, server, iteration, after, received, begun, done, released, answered = columns
    ints = [column.astype(np.int64) for column in (worker, server, iteration)]
    size = np.full(len(rows), 100)
    begin = answered - 1.0
    sent, arrived = received - 0.5, answered + 0.5
    return Requests(
        *ints, size, size, sent, after, received, begun, done, released, begin, answered, answered,
        arrived, arrived,
    )  # fmt: skip


def test_servers_get_factors_only_where_they_clearly_differ():
    error = np.full(3, 0.1)
    assert server_factors(np.array([1.0, 1.0, 4.0]), error) == (0.5, 0.5, 2.0)
    # 1.6 s apart, and four errors of the difference of two are 0.57 s: with three times the
    # errors it may be chance. A fifth more is no difference, however well it is known.
    assert server_factors(np.array([1.0, 1.0, 2.6]), 3 * error) == ()
    assert server_factors(np.array([1.0, 1.0, 1.2]), 0 * error) == ()
    assert server_factors(np.array([1.0, 1.0, np.nan]), error) == ()
    # A server whose updates take no time that can be told has a factor above 0.
    slow, fast = server_factors(np.array([1.0, -0.001]), error[:2])
    assert (slow, fast) == pytest.approx((2.0, 0.001), rel=0.01)
    # The common mean is not above 0, so factors of it have no meaning.
    assert server_factors(np.array([1.0, -2.0]), error[:2]) == ()
    assert server_factors(np.array([1.0, -1.0]), error[:2]) == ()


def test_clocks_that_differ_are_brought_together():
    there, back, ahead = 0.5, 0.5, 1000.0
    rows = [(0, 0, n, *(t + ahead for t in (1, 1, 1, 2, 2, 4))) for n in range(9)]
    given = requests(rows)
    moved = Requests(
        *(
            getattr(given, name) - (ahead if name in ("sent", "arrived", "arrived_after") else 0)
            for name in Requests.__slots__
        )
    )
    offsets = moved.offsets()
    assert offsets == {(0, 0): pytest.approx(ahead)}
    found = moved.in_clocks_of_workers(offsets)
    assert found.received - found.sent == pytest.approx(np.full(9, there))
    assert found.arrived - found.answered == pytest.approx(np.full(9, back))


@pytest.mark.parametrize(
    ("size_bytes", "ring_s"),
    [
        # Three rounds of two latencies and half a chunk of 1 kB, then the other half; twice.
        (4_000, 2 * (3 * (2e-3 + 12.5e-6) + 12.5e-6)),
        # The links are busy with three chunks of 250 kB after the first two latencies; twice.
        (1_000_000, 2 * (2e-3 + 3 * 6.25e-3)),
    ],
)
def test_a_ring_of_gloo_waits_for_the_receivers_of_short_chunks_only(size_bytes, ring_s):
    slow = {"worker-2": LinkLaw(1e-3, 4e7), "server-0": LinkLaw(1.0, 1.0)}
    found = assumed_all_reduce(NetworkLaw(1e-4, 1e9, nodes=slow), 4, size_bytes)
    assert found.latency_s == pytest.approx(2e-3)
    chunk_s = size_bytes / 4 / found.bandwidth_bytes_per_s
    assert 6 * (found.latency_s + chunk_s) == pytest.approx(ring_s, rel=1e-3)
