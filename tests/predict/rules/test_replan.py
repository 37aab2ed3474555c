"""Re-plan, compared with the best possible stopping for a small, exactly known model."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from tests.support.scenarios import Always, Scenarios, best_stopping

from outpace.predict.replay import replay
from outpace.predict.rules.planning import Predicted, Replan


def nodes(slow: float, jitter: tuple[float, ...] = (0.9, 1.0)) -> np.ndarray:
    """Three nodes of two workers; each node may be `slow`, and each is a little early or late."""
    node = [factor * own for factor in (1.0, slow) for own in jitter]
    rows = itertools.product(node, repeat=3)
    return np.array([[t * (1 + 0.05 * w) for t in row for w in range(2)] for row in rows])


def mean_throughput(rule, seconds):
    return replay(rule, seconds).throughput.mean()


def replan(seconds, **options):
    return Replan(Always(Scenarios(seconds)), samples=len(seconds), **options)


def planned(seconds):
    following = Always(Scenarios(seconds))
    return Predicted(following, samples=len(seconds))


@pytest.mark.parametrize("slow", [1.3, 2.0, 5.0])
def test_where_nodes_may_be_slow_it_is_within_a_hundredth_and_a_half_of_the_best_stopping(slow):
    seconds = nodes(slow)
    best = best_stopping(seconds)
    found = mean_throughput(replan(seconds), seconds)
    assert mean_throughput(planned(seconds), seconds) <= found <= best + 1e-9
    assert found >= 0.985 * best


@pytest.mark.parametrize("seed", range(3))
def test_of_any_scenarios_it_is_no_better_than_the_best_stopping_and_not_much_worse(seed):
    random = np.random.default_rng(seed)
    seconds = random.integers(4, 16, (12, 4)) / 4
    best = best_stopping(seconds)
    found = mean_throughput(replan(seconds), seconds)
    assert 0.95 * best <= found <= best + 1e-9
    assert found >= mean_throughput(planned(seconds), seconds) - 1e-9


def test_it_stops_when_those_it_counted_on_fail_to_come():
    # Mostly all come by 1.1; now and then half of them take very long.
    usual = np.array([1.0, 1.0, 1.1, 1.1])
    seconds = np.vstack([np.tile(usual, (9, 1)), [[1.0, 1.0, 9.0, 9.0]]])
    done = replay(replan(seconds), seconds)
    assert done.count.tolist() == [4] * 9 + [2]
    assert done.ended_s[-1] == pytest.approx(1.1)


def test_it_goes_on_when_more_are_about_to_come_than_it_planned_for():
    # That the first two come at 1.1 and not at 1 says that the others follow.
    seconds = np.array([[1.0, 1.0, 6.0, 6.0]] * 9 + [[1.1, 1.1, 1.5, 1.5]])
    assert replay(replan(seconds), seconds).count[-1] == 4
    assert replay(planned(seconds), seconds[-1:]).count[0] == 2


@pytest.mark.parametrize("reviews", [0, 1, 8])
def test_who_never_comes_is_not_waited_for_however_soon_the_model_expects_it(reviews):
    seconds = np.linspace(1.0, 1.1, 8)[None]
    rule = Replan(Always(Soon(seconds[0].copy())), reviews=reviews)
    seconds[0, 7] = 1e6
    done = replay(rule, seconds)
    assert done.reviews[0] == reviews
    assert (done.count[0], done.ended_s[0] < 1.4) == (7, True)


@dataclass(frozen=True, eq=False)
class Soon:
    """All times are known except for a common factor; workers that have not come come soon."""

    seconds: np.ndarray

    def sample(self, count):
        return self.seconds * np.linspace(1.0, 1.02, count)[:, None]

    def given(self, arrived, elapsed_s):
        later = np.maximum(self.seconds, 1.01 * elapsed_s)
        return Soon(np.where(np.isnan(arrived), later, arrived))
