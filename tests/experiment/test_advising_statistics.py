"""The statistics of advice, on synthetic problems with known means."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from outpace.experiment.advising.candidates import candidates
from outpace.experiment.advising.curves import Curve
from outpace.experiment.advising.findings import Findings
from outpace.experiment.advising.phases import (
    FINALISTS,
    finalists,
    fresh_seeds,
    search,
)
from outpace.experiment.advising.runner import Budget
from outpace.experiment.advising.statistics import chosen, promised, speedup
from outpace.support.estimates import NOTHING, TimeTo
from outpace.support.targets import Target


def times(*values, missed=()):
    return [TimeTo(value, place not in missed) for place, value in enumerate(values)]


def drawn(random, means, seeds=8, shared=0.2, own=0.1):
    """Return times of strategies with these mean logarithms; seeds have an effect on all."""
    logs = np.array(list(means.values()))[:, None] + random.normal(0, shared, seeds)
    logs = logs + random.normal(0, own, logs.shape)
    return {name: times(*np.exp(row)) for name, row in zip(means, logs, strict=True)}


# -- intervals ---------------------------------------------------------------------------


def test_a_speedup_is_the_geometric_mean_of_the_pairs_with_students_interval():
    # Ratios 2 and 8: logarithms log 4 -+ log 2, standard deviation sqrt(2) log 2, of the mean
    # log 2. Student's t with one degree of freedom: 12.706 at 2.5 %, 25.452 at 1.25 %.
    found = speedup(times(1.0, 1.0), times(2.0, 8.0))
    assert found.mean == pytest.approx(4.0)
    assert found.low == pytest.approx(4 * 2**-12.7062, rel=1e-4)
    assert found.high == pytest.approx(4 * 2**12.7062, rel=1e-4)
    two = speedup(times(1.0, 1.0), times(2.0, 8.0), family=2)
    assert two.low == pytest.approx(4 * 2**-25.4517, rel=1e-4)
    assert two.high == found.high


def test_runs_that_missed_the_target_leave_an_end_of_the_interval_open():
    reference_missed = speedup(times(1.0, 1.0), times(2.0, 2.5, missed=[1]))
    assert reference_missed.high is None
    assert reference_missed.low is not None
    missed = speedup(times(3.0, 1.0, missed=[0]), times(2.0, 2.5))
    assert missed.low is None
    assert missed.high is not None
    assert speedup(times(3.0, 1.0, missed=[0]), times(2.0, 2.5, missed=[0])) == NOTHING


@pytest.mark.parametrize("gains", [(0.0,) * 4, (0.3, 0.3, 0.1, 0.0), (0.5, 0.2, 0.1, 0.0)])
def test_the_interval_of_the_best_contains_its_true_speedup_in_95_percent(gains):
    random = np.random.default_rng(11)
    true = {f"s{k}": gain for k, gain in enumerate(gains)}
    held = 0
    for _ in range(200):
        found = chosen(drawn(random, {"BSP": 0.0} | {n: -g for n, g in true.items()}), "BSP")
        best = max(true, key=lambda name: found.speedups[name].mean)
        interval = found.speedups[best]
        held += interval.low <= math.exp(true[best]) <= interval.high
    assert 0.90 * 200 <= held <= 0.99 * 200


def test_a_significant_gain_that_is_too_small_to_be_worth_a_change_gives_way_to_the_reference():
    # 2 % sooner on every seed, with hardly any spread.
    found = {"BSP": times(1.02, 2.04, 1.53), "all-reduce": times(1.0, 2.001, 1.5)}
    assert chosen(found, "BSP").name == "all-reduce"
    choice = chosen(found, "BSP", min_gain=0.05)
    assert (choice.name, choice.best) == ("BSP", "all-reduce")
    assert choice.speedups["all-reduce"].low > 1
    assert chosen({**found, "ASP": times(0.9, 1.8, 1.35)}, "BSP", min_gain=0.05).name == "ASP"


# -- the promise -------------------------------------------------------------------------


def crossings(*values, gap_s=0.0):
    """Return curves that cross the score 0 at these times, and show it half a gap later."""
    return [Curve((v - gap_s / 2, v + gap_s / 2), (-1.0, 1.0)) for v in values]


def test_the_interval_of_one_run_has_the_spread_over_seeds():
    found = promised(crossings(math.exp(-0.1), math.exp(0.1)), (), 0.0)
    # n = 2, s = 0.1 sqrt 2, t = 6.3138 at 5 %; further run: s^2 (1 + 1/2) = 0.03.
    assert found.low == pytest.approx(math.exp(-6.3138 * math.sqrt(0.03)), rel=1e-4)
    assert found.high == pytest.approx(math.exp(6.3138 * math.sqrt(0.03)), rel=1e-4)


def test_the_interval_of_a_ratio_has_the_crossings_and_an_evaluation_on_either_side():
    # Ratios 2: no spread. Seen late by 1/4 of 4 s, and by 1 s of 8 s.
    found = promised(crossings(8.0, 8.0, gap_s=1.0), crossings(4.0, 4.0, gap_s=1.0), 0.0)
    assert found.mean == pytest.approx(8.5 / 4.5)
    assert found.low == pytest.approx(2 / 1.25)
    assert found.high == pytest.approx(2 * 1.125)
    missed = [Curve((9.0,), (-1.0,))] * 2
    assert promised(missed, crossings(4.0, 4.0), 0.0) == NOTHING


@pytest.mark.parametrize("gap", [0.01, 0.5])
def test_the_interval_of_a_ratio_contains_at_least_90_percent_of_further_pairs(gap):
    """Simulated runs of one seed have common run times; two real runs do not."""
    random = np.random.default_rng(7)

    def shown(logs):
        """Return curves that cross 0, which is visible at the next multiple of the gap."""
        at = np.exp(logs)
        after = np.ceil(at / gap) * gap
        return [Curve((t - gap, t), (t - gap - c, t - c)) for t, c in zip(after, at, strict=True)]

    held = 0
    for _ in range(300):
        # standard deviation that the simulated runs of a seed share
        shared = random.normal(0, 0.1, 8)
        own = shown(shared + random.normal(0, 0.05, 8))
        reference = shown(0.7 + shared + random.normal(0, 0.05, 8))
        new = random.normal(0, math.hypot(0.1, 0.05), 2)
        real, real_reference = (c[0].end_s for c in (shown(new[:1]), shown(0.7 + new[1:])))
        interval = promised(reference, own, 0.0)
        held += interval.low <= real_reference / real <= interval.high
    assert held >= 0.9 * 300


def test_the_crossing_of_a_curve_is_interpolated():
    curve = Curve((1.0, 3.0, 5.0), (0.1, 0.5, 0.9))
    assert (curve.crossing_s(0.6), curve.gap_s(0.6)) == (3.5, 2.0)
    assert curve.time_to(0.6, 9.0) == TimeTo(5.0, True)
    assert (curve.crossing_s(0.05), curve.gap_s(0.05)) == (1.0, 1.0)
    assert (curve.crossing_s(0.95), curve.time_to(0.95, 9.0)) == (None, TimeTo(9.0, False))


# -- the search ------------------------------------------------------------------------------

NAMES = [each.name for each in candidates(16)]
POINTS = 12  # evaluations in the mean time to the target


class Synthetic:
    """Candidates whose time to the target is lognormal; its mean depends on the rate.

    A run with a rate above its limit fails; the limit differs by 30 % from seed to seed.
    """

    def __init__(self, means=(), rates=(), limits=(), noise=0.05, seed=0):
        self.means, self.rates, self.limits = dict(means), dict(rates), dict(limits)
        self.random, self.noise = np.random.default_rng(seed), noise
        self.shared = {}

    def curve(self, trial):
        shared = self.shared.setdefault(trial.seed, self.random.normal(0, 0.1))
        off = math.log2(trial.rate / self.rates.get(trial.candidate, 1.0))
        log = self.means.get(trial.candidate, 0.0) + shared + 0.1 * off * off
        whole_s = 10 * math.exp(log + self.random.normal(0, self.noise))
        limit = self.limits.get(trial.candidate, math.inf)
        if trial.rate > limit * math.exp(self.random.normal(0, 0.3)):
            return Curve(error="the loss became nan")
        step_s = 10 / POINTS
        at = [step_s * (k + 1) for k in range(int(min(whole_s + step_s, trial.limit_s) / step_s))]
        return Curve(tuple(at), tuple(0.95 * min(1.0, t / whole_s) for t in at))

    def found(self, names=NAMES, rate=1.0, budget=None, phases=(search, fresh_seeds)):
        """Carry out the search and the runs on fresh seeds."""
        problem = SimpleNamespace(
            candidates=[each for each in candidates(16) if each.name in names],
            rate=rate,
            seed=0,
            target=Target(accuracy=0.95),
        )
        found = Findings(problem, tuple(range(8)), 100.0)
        for phase in phases:
            for trials in phase(found, budget or Budget()):
                for trial in trials:
                    if trial not in found.of(trial.part, trial.candidate):
                        found.note(trial, self.curve(trial))
        return found


def test_of_24_equal_candidates_hardly_any_is_told_apart_from_bsp():
    told_apart = 0
    for study in range(100):
        times = Synthetic(noise=0.1, seed=study).found().times()
        assert len(times) == FINALISTS + 2
        told_apart += chosen(times, "BSP").name != "BSP"
    assert told_apart <= 0.1 * 100


def test_the_search_finds_the_best_of_24_and_its_learning_rate():
    for study in range(10):
        random = np.random.default_rng(study)
        means = dict(zip(NAMES, random.normal(0, 0.3, 24), strict=True))
        rates = {name: 2.0 ** random.integers(-2, 3) for name in NAMES}
        found = Synthetic(means, rates, noise=0.03, seed=study).found()
        best = min(means, key=means.get)
        assert best in finalists(found)
        assert found.rates(best)[0] == rates[best]


def test_a_trial_ends_when_it_can_no_longer_win_and_a_reference_by_its_own_best_time():
    found = Synthetic({"SSP 4": -2.0}, noise=0.0).found(phases=[search])
    best_s = found.best_s()
    assert best_s == found.best_s(["SSP 4"])
    assert found.limit_s("ASP") == found.limit_s("SSP 4") == 1.5 * best_s
    assert found.limit_s("BSP") == 1.5 * found.best_s(["BSP"]) > 10.0
    assert finalists(found)[:3] == ["BSP", "SSP 4", "all-reduce"]


def test_training_hardly_ever_diverges_with_the_rates_that_count():
    """Times are shortest near the rate at which training diverges, and then get no better."""
    limits = dict.fromkeys(NAMES, 1.5)
    diverged = runs = 0
    for study in range(20):
        synthetic = Synthetic(rates=dict.fromkeys(NAMES, 4.0), limits=limits, seed=study)
        curves = [c for own in synthetic.found().on_fresh_seeds().values() for c in own.values()]
        runs += len(curves)
        diverged += sum(curve.error is not None for curve in curves)
    assert diverged <= 0.02 * runs


def test_a_run_diverges_if_it_fails_or_loses_half_of_what_it_had_gained():
    at = (1.0, 2.0, 3.0, 4.0, 5.0)
    assert Curve(error="nan").diverged(0.95)
    assert Curve(at, (0.1, 0.5, 0.9, 0.5, 0.4)).diverged(0.95)
    assert not Curve(at, (0.1, 0.5, 0.9, 0.5, 0.6)).diverged(0.95)
    assert not Curve(at, (0.1, 0.5, 0.96, 0.5, 0.1)).diverged(0.95)
    assert not Curve(at[:4], (0.1, 0.5, 0.9, 0.1)).diverged(0.95)  # too few to judge
