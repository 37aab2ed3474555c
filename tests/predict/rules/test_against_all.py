"""A rule that loses against waiting for all workers is left, and returned to when it pays."""

from __future__ import annotations

import numpy as np

from outpace.predict.interface import Wait
from outpace.predict.replay import replay
from outpace.predict.rules.baselines import Fixed
from outpace.predict.rules.comparing import AgainstAll


def times(iterations, last, seed=0):
    """Nine workers of 1 s, and one that takes `last` seconds, with 1 % of noise."""
    noise = np.random.default_rng(seed).normal(0, 0.01, (iterations, 10))
    return np.append(np.ones(9), last) * np.exp(noise)


def test_a_rule_that_cuts_off_too_often_waits_for_all_within_ten_iterations():
    # Nine of ten by 1 s, where the tenth comes at 1 s, too: 10 % less.
    done = replay(AgainstAll(Fixed(Wait(count=9))), times(100, 1.0), censored=False)
    assert done.count[0] == 9
    assert (done.count[10:] == 10).all()


def test_it_is_returned_to_when_cutting_off_pays():
    slow = np.concatenate([times(60, 1.0), times(60, 3.0, seed=1)])
    done = replay(AgainstAll(Fixed(Wait(count=9))), slow, censored=False)
    assert (done.count[30:60] == 10).all()
    assert (done.count[70:] == 9).all()


def test_a_rule_that_pays_is_never_left_though_what_it_gains_is_guessed():
    rule = AgainstAll(Fixed(Wait(count=9)))
    first, rest = times(1, 3.0), times(300, 3.0, seed=1)
    rule.observe(first[0], np.zeros(10, dtype=bool), float(first.max()))
    assert (replay(rule, rest).count == 9).all()
