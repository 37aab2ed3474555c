"""A deadline relative to the arrival of the first quarter of the workers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from outpace.predict.replay import replay
from outpace.predict.rules.baselines import Early
from outpace.predict.rules.comparing import Hedge
from outpace.predict.rules.making import make_rule
from outpace.predict.rules.planning import best_deadline
from outpace.predict.rules.settings import CutOffSettings

# Relative to the second of eight: 1.2 is the best deadline (6 / 1.2 = 5; 8 / 2 = 4; 2 / 1 = 2).
EIGHT = np.array([0.9, 1.0, 1.1, 1.1, 1.2, 1.2, 2.0, 2.0])


def early(decision=best_deadline, *, iterations=20):
    return Early(iterations, decision)


def shown(rule, rows):
    for row in rows:
        assert rule.begin() is not None
        rule.observe(np.array(row), np.zeros(len(row), bool), float(np.nanmax(row)))
    return rule


def arrived(*times, workers=8):
    return np.array([*times, *[math.nan] * (workers - len(times))])


@pytest.mark.parametrize("speed", [0.1, 1.0, 7.0])
def test_the_deadline_is_relative_to_the_first_quarter_whatever_the_iteration_is_like(speed):
    rule = shown(early(), [EIGHT, 3 * EIGHT, 0.5 * EIGHT])
    rule.begin()
    wait = rule.review(arrived(0.8 * speed, speed), speed)
    assert wait.count == math.inf
    assert wait.until_s == pytest.approx(1.2 * 1.005 * speed)


def test_a_worker_that_was_cut_off_is_not_taken_to_have_been_about_to_come():
    # Two of eight are never seen: with their bounds as times, 2 s would seem to be worth it.
    rule = shown(early(iterations=1), [[0.9, 1.0, 1.1, 1.1, 1.1, 1.1, 9.0, 9.0]])
    row = np.array([0.9, 1.0, 1.1, 1.1, 1.1, 1.1, 1.3, 1.3])
    rule.begin()
    rule.observe(row, row == 1.3, 1.3)
    rule.begin()
    assert rule.review(arrived(0.9, 1.0), 1.0).until_s == pytest.approx(1.1 * 1.005)


def common(seed, iterations=160, factor=0.4):
    """Eight nodes of four workers, slow in bursts, and a common factor of each iteration."""
    random = np.random.default_rng(seed)
    slow = np.zeros((iterations, 8), dtype=bool)
    for t in range(1, iterations):
        slow[t] = slow[t - 1] ^ (random.random(8) < np.where(slow[t - 1], 0.1, 0.04))
    seconds = np.where(np.repeat(slow, 4, axis=1), 2.5, 1.0)
    seconds = seconds * np.exp(random.normal(0, 0.03, seconds.shape))
    return seconds * np.exp(random.normal(0, factor, (iterations, 1)))


def of_oracle(rule, seconds):
    return replay(rule, seconds).since(20).of_oracle


def named(model):
    return make_rule(CutOffSettings(model, warmup=0), node=np.zeros(32, dtype=int))


def test_where_iterations_vary_in_common_it_is_far_ahead_and_a_hedge_follows_it():
    seconds = common(1)
    absolute = max(of_oracle(named(name), seconds) for name in ("last-20", "last-5"))
    alone = of_oracle(named("early-20"), seconds)
    hedge = Hedge([named(name) for name in ("last-20", "last-5", "early-20")], warmup=0)
    assert alone > 97
    assert alone > absolute + 5
    assert of_oracle(hedge, seconds) > alone - 1
