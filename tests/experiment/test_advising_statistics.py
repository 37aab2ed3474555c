"""The statistics of advice, on synthetic problems with known means."""

import dataclasses
import math

import numpy as np
import pytest

from outpace.experiment.advising.calibration_error import errors_of
from outpace.experiment.advising.curves import Bound, Curve, Trial, projected_s
from outpace.experiment.advising.promise import one_pair, one_run
from outpace.experiment.advising.results import after_target
from outpace.experiment.advising.search import FINALISTS, SEEDS, Search, Space, carry_out
from outpace.experiment.advising.statistics import chosen, probability_of_best, speedup
from outpace.report.advice.result import AfterTarget
from outpace.support.estimates import NOTHING, TimeTo
from outpace.support.targets import Target

POINTS = 24


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
        best = max(found.speedups, key=lambda name: found.speedups[name].mean)
        interval = found.speedups[best]
        held += interval.low <= math.exp(true[best]) <= interval.high
    assert 0.90 * 200 <= held <= 0.99 * 200


def test_a_strategy_that_is_not_reliably_sooner_gives_way_to_the_reference():
    # Five times sooner once, five times later once.
    found = chosen({"BSP": times(1.0, 1.0, 1.0), "ASP": times(0.2, 1.0, 4.0)}, "BSP")
    assert (found.name, found.distinguishable, found.best) == ("BSP", False, "ASP")
    assert found.speedup.mean == 1.0


def test_a_significant_gain_that_is_too_small_to_be_worth_a_change_gives_way_to_the_reference():
    # 2 % sooner on every seed, with hardly any spread.
    found = {"BSP": times(1.02, 2.04, 1.53), "all-reduce": times(1.0, 2.001, 1.5)}
    assert chosen(found, "BSP").name == "all-reduce"
    choice = chosen(found, "BSP", min_gain=0.05)
    assert (choice.name, choice.best, choice.distinguishable) == ("BSP", "all-reduce", False)
    assert choice.speedups["all-reduce"].low > 1
    assert chosen({**found, "ASP": times(0.9, 1.8, 1.35)}, "BSP", min_gain=0.05).name == "ASP"


def test_bounds_of_a_reference_that_missed_the_target_are_enough_to_choose():
    slow = times(90.0, 91.0, 90.0, missed=[0, 1, 2])
    found = chosen({"BSP": slow, "ASP": times(9.0, 9.1, 8.9)}, "BSP")
    assert found.name == "ASP"
    assert found.speedup.low > 9
    assert found.speedup.high is None


def test_between_two_strategies_the_probability_is_the_level_of_the_paired_t_test():
    # Differences of the logarithms 0.1, 0.2, 0.3: t = 0.2 / (0.1 / sqrt 3) = 3.464 with 2 degrees
    # of freedom; P(T < t) = 1/2 + t / (2 sqrt(2 + t^2)) = 0.9629.
    first = times(1.0, 1.0, 1.0)
    second = times(math.exp(0.1), math.exp(0.2), math.exp(0.3))
    found = probability_of_best({"a": first, "b": second, "c": times(9, 9, 9, missed=[0])})
    assert found["a"] == pytest.approx(0.9629, abs=0.005)
    assert found["b"] == pytest.approx(1 - found["a"])
    assert found["c"] == 0.0


def test_the_error_of_the_calibration_widens_a_speedup_and_does_not_shrink_with_the_seeds():
    # Equal pairs have no spread, so only z e is left: 1.95996 at 2.5 %, 2.24140 at 1.25 %.
    found = speedup(times(1.0, 2.0), times(2.0, 4.0), family=2, error=0.1)
    assert found.mean == pytest.approx(2.0)
    assert found.low == pytest.approx(2 * math.exp(-0.224140), rel=1e-5)
    assert found.high == pytest.approx(2 * math.exp(0.195996), rel=1e-5)
    # Ratios 2 and 8 as above: sqrt((12.7062 log 2)^2 + 0.195996^2) = 8.80946.
    both = speedup(times(1.0, 1.0), times(2.0, 8.0), error=0.1)
    assert both.high == pytest.approx(4 * math.exp(8.80946), rel=1e-4)
    sooner = {"BSP": times(1.1, 1.1), "ASP": times(1.0, 1.0)}
    assert chosen(sooner, "BSP", 0.04).name == "ASP"  # log 1.1 = 0.0953 > 1.96 times 0.04
    assert chosen(sooner, "BSP", 0.05).name == "BSP"


# -- the promise -------------------------------------------------------------------------


def crossings(*values, gap_s=0.0):
    """Return curves that cross the score 0 at these times, and show it half a gap later."""
    return [Curve.of([v - gap_s / 2, v + gap_s / 2], [-1.0, 1.0]) for v in values]


def test_the_interval_of_one_run_has_the_spread_the_prediction_error_and_both():
    found = one_run(crossings(math.exp(-0.1), math.exp(0.1)), 0.0, 0.05)
    # n = 2, s = 0.1 sqrt 2, t = 6.3138 at 5 %; further run: s^2 (1 + 1/2) = 0.03.
    assert found.seeds.high == pytest.approx(math.exp(6.3138 * math.sqrt(0.03)), rel=1e-4)
    assert found.prediction.high == pytest.approx(math.exp(1.6449 * 0.05), rel=1e-4)
    both = math.sqrt(0.03 + 0.05**2)
    assert found.both.low == pytest.approx(math.exp(-6.3138 * both), rel=1e-4)
    unknown = one_run(crossings(1.0, 2.0), 0.0, None)
    assert (unknown.both, unknown.prediction) == (unknown.seeds, NOTHING)


def test_a_run_may_show_the_target_one_evaluation_after_it_has_crossed_it():
    # Crossed at 4.1 s and shown at 5.1 s, 2 s after the evaluation before.
    found = one_run(crossings(4.1, 4.1, gap_s=2.0), 0.0, 0.05)
    reach = 6.3138 * 0.05
    assert found.both.mean == pytest.approx(5.1)
    assert found.both.low == pytest.approx(4.1 * math.exp(-reach), rel=1e-4)
    assert found.both.high == pytest.approx(4.1 * math.exp(reach) + 2.0, rel=1e-4)


def test_the_interval_of_a_pair_of_runs_has_the_ratios_of_their_crossings():
    # Ratios 2: no spread. t = 6.3138, e = 0.02. Seen late by 1/4 of 4 s, and by 1 s of 8 s.
    found = one_pair(crossings(4.0, 4.0, gap_s=1.0), crossings(8.0, 8.0, gap_s=1.0), 0.0, 0.02)
    assert found.both.mean == pytest.approx(8.5 / 4.5)
    assert found.both.low == pytest.approx(2 * math.exp(-6.3138 * 0.02) / 1.25, rel=1e-4)
    assert found.both.high == pytest.approx(2 * math.exp(6.3138 * 0.02) * 1.125, rel=1e-4)
    assert found.seeds.low == pytest.approx(2 / 1.25)
    assert found.prediction.high == pytest.approx(2 * math.exp(1.6449 * 0.02) * 1.125, rel=1e-4)
    missed = [Curve.of([9.0], [-1.0])] * 2
    assert one_pair(crossings(4.0, 4.0), missed, 0.0, 0.02).both == NOTHING


def test_two_real_runs_do_not_share_the_run_times_that_a_pair_of_simulated_ones_shares():
    # Both logarithms are -0.1 and 0.1: variances 0.02 each, and none of their difference.
    times_s = math.exp(-0.1), math.exp(0.1)
    found = one_pair(crossings(*times_s), crossings(*(2 * each for each in times_s)), 0.0, None)
    assert found.both.mean == pytest.approx(2.0)
    assert found.both.high == pytest.approx(2 * math.exp(6.3138 * 0.2), rel=1e-4)


@pytest.mark.parametrize("gap", [0.01, 0.5])
def test_the_interval_of_a_pair_contains_at_least_90_percent_of_further_pairs(gap):
    random = np.random.default_rng(7)

    def shown(logs):
        """Return curves that cross the score 0, and show it at the next multiple of the gap."""
        at = np.exp(logs)
        after = np.ceil(at / gap) * gap
        return [
            Curve.of([t - gap, t], [t - gap - c, t - c]) for t, c in zip(after, at, strict=True)
        ]

    held = 0
    for _ in range(300):
        shared = random.normal(0, 0.1, 8)  # of the simulated runs of a seed
        own = shown(shared + random.normal(0, 0.05, 8))
        reference = shown(0.7 + shared + random.normal(0, 0.05, 8))
        new = random.normal(0, math.hypot(0.1, 0.05), 2)
        real, real_reference = (c[0].end_s for c in (shown(new[:1]), shown(0.7 + new[1:])))
        interval = one_pair(own, reference, 0.0, None).both
        held += interval.low <= real_reference / real <= interval.high
    assert held >= 0.9 * 300


def test_the_crossing_of_a_curve_is_interpolated():
    curve = Curve.of([1.0, 3.0, 5.0], [0.1, 0.5, 0.9])
    assert (curve.crossing_s(0.6), curve.time_to(0.6).time_s, curve.gap_s(0.6)) == (3.5, 5.0, 2.0)
    assert (curve.crossing_s(0.05), curve.gap_s(0.05)) == (1.0, 1.0)
    assert (curve.crossing_s(0.95), curve.time_to(0.95)) == (None, TimeTo(5.0, False))


def test_prediction_errors_are_those_of_gradients_in_equal_time():
    # Ratios of ASP to BSP: -10 % and -10 %.
    bsp, asp = {0: 0.2, 1: 0.0}, {0: 0.1, 1: -0.1}
    found = errors_of({"BSP": bsp, "ASP": asp})
    assert found.of_time["ASP"] == pytest.approx(0.1)
    assert found.of_time["BSP"] == pytest.approx(0.2 / math.sqrt(2))
    assert found.of_speedup == pytest.approx(0.1)
    assert errors_of({"BSP": bsp}).of_speedup is None
    assert "failed" in errors_of({"BSP": bsp, "SSP": {}}).reason


@pytest.mark.parametrize(
    ("goal", "reached", "lasts", "left", "worst"),
    [
        # A loss of 0.25 is left above 0.275, an accuracy of 0.9 below 0.89.
        (Target(loss=0.25), -0.2, [-0.27, -0.28, -1.36], 2, 1.36),
        (Target(accuracy=0.9), 0.91, [0.895, 0.885, 0.95], 1, 0.885),
    ],
)
def test_runs_that_left_the_target_again_are_counted(goal, reached, lasts, left, worst):
    curves = [Curve.of([1.0, 2.0], [reached, last]) for last in lasts]
    ended_there = Curve.of([1.0], [reached], "reached")
    missed = Curve.of([1.0, 2.0], [-9.0, -9.0])
    found = after_target([*curves, ended_there, missed], goal)
    assert found == AfterTarget(3, left, worst)


# -- bounds --------------------------------------------------------------------------------


def line(speed, until=POINTS, ended="end"):
    """Return a curve whose score grows by 0.1 speed in each second."""
    at = [float(k) for k in range(until + 1)]
    return Curve.of(at, [0.1 * speed * t for t in at], ended)


def test_a_trial_that_cannot_win_is_stopped():
    best = line(1.0)  # crosses 0.95 after 9.5 s, and shows it after 10 s
    bound = Bound(100.0, 0.95, best)
    assert best.time_to(0.95) == TimeTo(10.0, True)
    assert not bound.stops(12.0, 0.94)
    assert bound.stops(12.5, 0.94)  # more than 1.3 times 9.5 s
    assert not bound.stops(8.0, 0.2)  # four times slower than the best so far
    assert bound.stops(8.0, 0.1)  # eight times slower
    assert not bound.stops(4.0, 0.0)  # too early to judge
    assert not Bound(100.0, 0.95).stops(99.0, 0.0)


def test_stopped_trials_are_ranked_by_their_projection():
    best = line(1.0)
    assert projected_s(line(0.5, until=8), 0.95, best) == pytest.approx(19.0)
    assert projected_s(best, 0.95, best) == pytest.approx(9.5)
    assert projected_s(Curve.of([], [], "failed"), 0.95, best) == math.inf


# -- the search ------------------------------------------------------------------------------


class Synthetic:
    """Candidates whose time to the target is lognormal around a mean, best at some rate."""

    def __init__(self, means, rates=(), noise=0.05, seed=0):
        self.means, self.rates = means, dict(rates)
        self.random, self.noise, self.seed = np.random.default_rng(seed), noise, seed
        self.shared = {}
        self.trials = []

    def time(self, candidate, rate, seed):
        if seed not in self.shared:
            self.shared[seed] = self.random.normal(0, 0.1)
        off = math.log2(rate / self.rates.get(candidate, 1.0))
        noise = self.random.normal(0, self.noise)
        return math.exp(self.means[candidate] + self.shared[seed] + 0.1 * off * off + noise)

    def run(self, trials):
        self.trials += trials
        return [(trial, self._curve(trial)) for trial in trials]

    over = False

    def _curve(self, trial):
        whole = 10 * self.time(trial.candidate, trial.rate, trial.seed)
        at, scores = [], []
        while True:
            at.append((len(at) + 1) * 10 / POINTS)
            scores.append(0.95 * min(1.0, at[-1] / whole))
            if scores[-1] >= 0.95 or at[-1] >= trial.bound.horizon_s:
                break
            if trial.bound.stops(at[-1], scores[-1]):
                return Curve.of(at, scores, "stopped", cost_s=at[-1])
        return Curve.of(at, scores, "reached", cost_s=at[-1])


def space(names, seeds=tuple(range(100, 100 + SEEDS)), rate=1.0):
    return Space(tuple(names), ("BSP", "all-reduce"), rate, seeds, 100.0, 0.95)


def searched(space, runner):
    search = Search(space)
    carry_out(search, runner)
    return search


def names(count):
    return ["BSP", "all-reduce", *(f"s{k}" for k in range(count - 2))]


def test_every_candidate_has_the_same_trials_and_the_references_as_many_as_the_finalists():
    means = dict.fromkeys(names(24), 0.0) | {"s3": -0.3, "s7": -0.5}
    runner = Synthetic(means, {"s7": 4.0, "BSP": 0.25})
    search = searched(space(means), runner)
    finalists = search.finalists()
    assert finalists[:2] == ["s7", "s3"]
    assert search.for_fresh_seeds(math.inf) == ["BSP", "all-reduce", *finalists]
    assert search.for_fresh_seeds(4.5) == ["BSP", "all-reduce", "s7", "s3"]
    assert search.for_fresh_seeds(2.0) == ["BSP", "s7"]
    counts = {name: len(known.trials) for name, known in search.known.items()}
    # Three rates, perhaps one beyond them; two, two and four trials. The references have six.
    assert {counts[name] for name in finalists} <= {11, 12}
    assert min(counts["BSP"], counts["all-reduce"]) >= 13
    assert set(counts.values()) - {counts["BSP"], counts["all-reduce"]} <= {
        3,
        4,
        5,
        6,
        7,
        8,
        11,
        12,
    }
    assert search.best_rate("s7") == 4.0  # beyond the rates of the first rounds
    assert search.best_rate("BSP") == 0.25
    assert search.space.trials == 3 * 24 + 2 * (2 + 11) + 2 * (2 + 6) + 6 * 2 + 4 * 4
    assert len(runner.trials) >= search.space.trials
    seeds = {trial.seed for trial in runner.trials}
    assert seeds <= set(range(100, 105))


def test_candidates_begin_with_the_rate_that_was_found_for_bsp_unless_time_is_short():
    means = dict.fromkeys(names(8), 0.0)
    rates = dict.fromkeys(means, 8.0)
    first = {}
    for climbs in (True, False):
        runner = Synthetic(means, rates, noise=0.001)
        search = Search(dataclasses.replace(space(means), climbs=climbs, first=2))
        rounds = search.rounds()
        for trials in rounds:
            for trial, curve in runner.run(trials):
                search.note(trial, curve)
            if trials[-1].candidate not in ("BSP", "all-reduce"):
                break
        first[climbs] = {(trial.candidate, trial.rate) for trial in trials}
        assert {trial.candidate for trial in next(rounds)} == {"s2", "s3", "s4", "s5"}
    assert first == {True: {("s0", 8.0), ("s1", 8.0)}, False: {("s0", 1.0), ("s1", 1.0)}}


def test_a_candidate_that_fails_with_every_rate_is_a_result_with_its_error():
    means = dict.fromkeys(names(6), 0.0)

    class Failing(Synthetic):
        def _curve(self, trial):
            if trial.candidate == "s1":
                return Curve.of([], [], "failed", error="the loss became nan")
            return super()._curve(trial)

    search = searched(space(means), Failing(means))
    assert search.failure("s1") == "the loss became nan"
    assert "s1" not in search.finalists()
    assert len(search.finalists()) == 3


def test_a_script_that_sets_its_own_rate_is_tried_on_further_seeds():
    means = dict.fromkeys(names(8), 0.0)
    runner = Synthetic(means)
    search = searched(space(means, rate=None), runner)
    assert {trial.rate for trial in runner.trials} == {1.0}
    counts = sorted(len(known.trials) for known in search.known.values())
    assert len(runner.trials) == search.space.trials
    assert counts == [1, 1, 2, 2, 2, 2, 2, 2]  # both references and the best four of six


def test_of_24_equal_candidates_hardly_any_is_told_apart_from_bsp():
    told_apart = 0
    for study in range(200):
        means = dict.fromkeys(names(24), 0.0)
        runner = Synthetic(means, noise=0.1, seed=study)
        search = searched(space(means), runner)
        finals = {
            name: [TimeTo(runner.time(name, search.best_rate(name), s), True) for s in range(8)]
            for name in ("BSP", "all-reduce", *search.finalists())
        }
        assert len(finals) == FINALISTS + 2
        told_apart += chosen(finals, "BSP").distinguishable
    assert told_apart <= 0.1 * 200


def test_the_search_finds_the_best_of_24_within_three_percent():
    regrets = []
    for study in range(20):
        random = np.random.default_rng(study)
        means = dict(zip(names(24), random.normal(0, 0.3, 24), strict=True))
        rates = {name: 2.0 ** random.integers(-2, 3) for name in means}
        search = searched(space(means), Synthetic(means, rates, noise=0.03, seed=study))
        best = min(means, key=means.get)
        kept = ["BSP", "all-reduce", *search.finalists()]
        assert best in kept
        rate = math.log2(search.best_rate(best) / rates[best])
        regrets.append(math.exp(0.1 * rate * rate) - 1)
    assert sum(regrets) / len(regrets) <= 0.03


def test_a_search_without_any_run_that_reached_the_target_ranks_by_the_best_score():
    means = dict.fromkeys(names(4), 5.0) | {"s1": 4.0}
    search = searched(space(means), Synthetic(means, noise=0.0))
    assert search.best_curve is None
    assert search.ranked(without=("BSP", "all-reduce"))[0] == "s1"


# -- learning rates near the edge of stability ----------------------------------------------


class Unstable(Synthetic):
    """Times halve as rates double, until a limit beyond which training diverges.

    The limit of a run is lognormal around that of its candidate: 30 % from seed to seed.
    """

    def __init__(self, limits, seed=0):
        super().__init__(dict.fromkeys(limits, 0.0), noise=0.05, seed=seed)
        self.limits, self.known = limits, {}

    def time(self, candidate, rate, seed):
        key = (candidate, rate, seed)
        if key not in self.known:
            is_over = rate > self.limits[candidate] * math.exp(self.random.normal(0, 0.3))
            noise = self.random.normal(0, self.noise)
            self.known[key] = math.inf if is_over else math.exp(noise) / rate
        return self.known[key]

    def _curve(self, trial):
        if self.time(trial.candidate, trial.rate, trial.seed) == math.inf:
            return Curve.of([0.1], [0.1], "failed", error="the loss became nan")
        return super()._curve(trial)


def test_a_run_diverges_if_it_fails_or_loses_half_of_what_it_had_gained():
    at = [1.0, 2.0, 3.0, 4.0, 5.0]
    assert Curve.of([], [], "failed").diverged
    assert Curve.of(at, [0.1, 0.5, 0.9, 0.5, 0.4], "stopped").diverged
    assert not Curve.of(at, [0.1, 0.5, 0.9, 0.5, 0.6], "stopped").diverged
    assert not Curve.of(at, [0.1, 0.5, 0.96, 0.5, 0.1], "reached").diverged
    assert not Curve.of(at[:4], [0.1, 0.5, 0.9, 0.1], "stopped").diverged  # too few to judge


def noted(*trials):
    """Return a search with trials of BSP: learning rate, seed, and seconds (None: it failed)."""
    search = Search(space(names(3)))
    for rate, seed, time_s in trials:
        trial = Trial("BSP", rate, 100 + seed, Bound(100.0, 0.95))
        failed = Curve.of([], [], "failed")
        curve = failed if time_s is None else Curve.of([time_s], [0.95], "reached")
        search.note(trial, curve)
    return search


def test_a_failed_run_counts_against_its_rate():
    search = noted((1.0, 0, 9.0), (1.0, 1, 9.0), (2.0, 0, 5.0), (2.0, 1, None), (0.5, 0, 18.0))
    assert search.best_rate("BSP") == 1.0


def test_of_rates_that_are_about_equally_fast_the_lower_is_taken():
    # Two runs with each rate, whose logarithms are 0.1 above and below their mean; in opposite
    # order, so that seeds have no effect. One run has a deviation of 0.1 sqrt 2, and the difference
    # of two means has 0.1 sqrt 2, too.
    fast = [(2.0, 0, math.exp(2.1)), (2.0, 1, math.exp(1.9))]

    def slower(factor):
        return [(1.0, 0, factor * math.exp(1.9)), (1.0, 1, factor * math.exp(2.1))]

    assert noted(*slower(1.01), *fast).best_rate("BSP") == 1.0
    assert noted(*slower(1.03), *fast).best_rate("BSP") == 2.0  # within the error, yet above 2 %
    sure = [(2.0, 0, 5.0), (2.0, 1, 5.0), (1.0, 0, 5.05), (1.0, 1, 5.05)]
    assert noted(*sure).best_rate("BSP") == 2.0  # no noise
