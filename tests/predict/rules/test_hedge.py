"""The hedge is nearly as good as the best of its rules, for any other rules."""

from __future__ import annotations

import numpy as np
import pytest

from outpace.predict.interface import Wait
from outpace.predict.replay import replay
from outpace.predict.rules.baselines import Fixed
from outpace.predict.rules.comparing import Hedge

FIRST, ITERATIONS = 20, 320


def bimodal(seed: int, slow: np.ndarray) -> np.ndarray:
    """A fifth of 50 workers takes `slow` times as long, shape (T,)."""
    random = np.random.default_rng(seed)
    factor = np.where(np.arange(50) < 10, slow[:, None], 1.0)
    return factor * np.exp(random.normal(0, 0.05, (len(slow), 50)))


def of_oracle(rule, seconds, censored=True):
    return replay(rule, seconds, censored=censored).since(FIRST).of_oracle


@pytest.mark.parametrize(
    ("counts", "slow", "censored"),
    [((50, 40, 1), 1.05, True), ((1, 40, 50), 3.0, True), ((20, 30, 47), 1.2, False)],
)
def test_within_three_tenths_of_the_best_rule_where_nothing_changes(counts, slow, censored):
    seconds = bimodal(1, np.full(ITERATIONS, slow))
    rules = [Fixed(Wait(count=c)) for c in counts]
    best = max(of_oracle(rule, seconds) for rule in rules)
    assert of_oracle(Hedge(rules, warmup=FIRST), seconds, censored) >= best - 0.3


def test_it_changes_over_when_another_rule_becomes_the_better_one():
    # Cutting off the slow workers is right until they are no longer slow.
    slow = np.where(np.arange(ITERATIONS) < 100, 1.5, 1.0)
    seconds = bimodal(2, slow)
    rules = [Fixed(Wait(count=c)) for c in (40, 49)]
    alone = [of_oracle(rule, seconds) for rule in rules]
    hedge = Hedge(rules, warmup=FIRST)
    leaders = []
    for row in seconds:
        replay(hedge, row[None])
        leaders.append(hedge.leader)
    assert leaders[:FIRST] == [None] * FIRST
    assert leaders[90] == 0
    assert leaders[-10:] == [1] * 10
    assert of_oracle(Hedge(rules, warmup=FIRST), seconds) > max(alone)


def leaders(slow, prefers_first):
    """Return the leading rules if 40 workers take 1 s and ten `slow` s; rules wait for 50 or 40."""
    rules = [Fixed(Wait(count=50)), Fixed(Wait(count=40))]
    hedge = Hedge(rules, warmup=FIRST, prefers_first=prefers_first)
    found = []
    for each in slow:
        replay(hedge, np.where(np.arange(50) < 10, each, 1.0)[None], censored=False)
        found.append(hedge.leader)
    return found[FIRST:]


def test_a_preferred_rule_leads_until_another_is_ahead_by_more_than_a_standard_error():
    # Waiting for all 50 makes 50 gradients per second and then 50 / 1.75 = 28.6, so 39.3 in the
    # mean; waiting for 40 always makes 40. The error of the mean is about 10.7 / sqrt(80) = 1.2.
    slow = np.where(np.arange(200) % 2 == 0, 1.001, 1.75)
    assert set(leaders(slow, prefers_first=True)) == {0}
    assert leaders(slow, prefers_first=False).count(1) > 50
