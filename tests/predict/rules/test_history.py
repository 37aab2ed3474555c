"""A rule made anew that observes what another one had observed."""

from __future__ import annotations

import numpy as np
import pytest

from outpace.predict.interface import Wait
from outpace.predict.replay import play
from outpace.predict.rules.baselines import Fixed
from outpace.predict.rules.making import make_rule
from outpace.predict.rules.settings import CutOffSettings
from outpace.predict.rules.wrappers import History, Learning

NODE = np.arange(6) // 2
TIMES = np.random.default_rng(5).lognormal(0, 0.3, (40, 6))


def rule_of(**settings):
    return History(make_rule(CutOffSettings(**settings), node=NODE, truth=lambda: TIMES[0]))


def decide(rule, rows):
    """Play these iterations with the rule; return what it answered at their beginnings."""
    answers = []
    for times in rows:
        answers.append(rule.begin())
        ended_s = play(rule, answers[-1], times).ended_s
        rule.observe(np.minimum(times, ended_s), times > ended_s, ended_s)
    return answers


@pytest.mark.parametrize("model", ["last", "mean-5", "last-20", "elfving", "fixed"])
def test_it_decides_as_the_other_one_would_have(model):
    whole, half = (rule_of(model=model, warmup=10) for _ in range(2))
    expected = decide(whole, TIMES)[20:]
    decide(half, TIMES[:23])  # three more than are asked for
    again = rule_of(model=model, warmup=10)
    again.resume(half.tensors(20))
    assert decide(again, TIMES[20:]) == expected
    for name, tensor in whole.tensors(40).items():
        assert tensor.equal(again.tensors(40)[name])


class AtOnce:
    """Fits nothing, at once, and keeps what it was given."""

    model = None

    def start(self, recorded):
        self.model, self.recorded = type("Model", (), {"kind": "stub"}), recorded

    def done(self):
        return True


def test_a_learned_rule_is_fitted_to_it_and_does_not_warm_up_again():
    def learning():
        made = lambda *_: Fixed(Wait(count=2))  # noqa: E731
        return History(Learning(Fixed(Wait(count=4)), AtOnce(), made, NODE, 20))

    half, again = learning(), learning()
    assert decide(half, TIMES[:21]) == [Wait()] * 20 + [Wait(count=2)]
    again.resume(half.tensors(21))
    assert again.begin() == Wait(count=2)


def test_an_oracle_knows_the_next_times_and_nothing_of_the_past():
    again = rule_of(model="oracle")
    again.resume(rule_of(model="fixed").tensors(0))
    told = decide(rule_of(model="oracle"), TIMES[:1])
    half = rule_of(model="oracle")
    decide(half, TIMES[:1])
    again.resume(half.tensors(1))
    assert again.begin() == told[0]
