"""Every rule by its name; combinations of names that are refused."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
from tests.support.scenarios import Always, Scenarios

from outpace.errors import ConfigError
from outpace.predict.replay import replay
from outpace.predict.rules.making import make_rule
from outpace.predict.rules.settings import DECISIONS, INDEPENDENT, PLANS, ROLLING, CutOffSettings

NODE = np.arange(30) // 10


def times(seed: int, iterations: int = 40) -> np.ndarray:
    """Run times of three nodes, one of which is slow in half of the iterations."""
    random = np.random.default_rng(seed)
    slow = np.repeat(random.random((iterations, 1)) < 0.5, 30, axis=1) & (NODE == 0)
    return np.where(slow, 2.0, 1.0) * np.exp(random.normal(0, 0.1, (iterations, 30)))


class Recorded:
    """Draws with replacement from recorded iterations, as a fitted model would."""

    kind: ClassVar[str] = "pooled"
    needs = 3

    def follow(self, node, seed):
        assert len(node) == 30
        return Always(Bootstrap(np.random.default_rng(seed)))


class Bootstrap(Scenarios):
    def __init__(self, random):
        super().__init__(times(7))
        object.__setattr__(self, "random", random)

    def sample(self, count):
        return self.seconds[self.random.integers(len(self.seconds), size=count)]

    def given(self, arrived, elapsed_s):
        later = np.maximum(self.seconds, np.nextafter(elapsed_s, np.inf))
        return Scenarios(np.where(np.isnan(arrived), later, arrived))


class Failing(Recorded):
    def follow(self, node, seed):
        return Always(None)


def run(*names, seconds=None, **options):
    seconds = times(1) if seconds is None else seconds
    return replay(rule(*names, **options), seconds)


def rule(*names, fitted=None, truth=None, seed=0, say=lambda _: None, **settings):
    chosen = CutOffSettings(*names, **settings)
    return make_rule(chosen, node=NODE, fitted=fitted, truth=truth, seed=seed, say=say)


ALL_OF_THEM = [
    *((model, None) for model in INDEPENDENT if model != "oracle"),
    *((model, decision) for model in ROLLING for decision in (None, *PLANS)),
    *(("pooled", decision) for decision in (None, *DECISIONS)),
]


@pytest.mark.parametrize(("model", "decision"), ALL_OF_THEM)
@pytest.mark.parametrize("every", [1, 10])
def test_every_rule_waits_for_all_in_its_warm_up_and_decides_the_same_with_the_same_seed(
    model, decision, every
):
    options = {
        "every": every,
        "fitted": Recorded(),
        "warmup": 10,
        "seed": 3,
    }
    once, again = (run(model, decision, **options) for _ in range(2))
    assert once.ended_s.tolist() == again.ended_s.tolist()
    if model != "fixed":
        assert (once.count[:10] == 30).all()
    assert (once.count < 30).any() == (model != "all")


@pytest.mark.parametrize("decision", DECISIONS)
def test_a_model_that_fails_is_replaced_by_the_last_20_iterations_and_that_is_said(decision):
    said: list[str] = []
    found = run("pooled", decision, fitted=Failing(), warmup=20, say=said.append)
    assert len(said) == 1
    if decision != "hedge":
        assert found.count.tolist() == run("last-20").count.tolist()


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("poold",), "model must be 'all', .*, not 'poold'"),
        (("pooled", "counts"), "decision must be 'count', .*, not 'counts'"),
        (("last-20", "replan"), "decision must be count, deadline or .* with model last-20"),
        (("last-5", "hedge"), "decision must be count, deadline or .* with model last-5"),
        (("elfving", "count"), "must be left out: elfving decides by itself, not count"),
    ],
)
def test_names_that_do_not_go_together_are_refused(names, words):
    with pytest.raises(ValueError, match=words):
        CutOffSettings(*names)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("pooled", {}, "has to be fitted"),
        ("deep-markov", {"fitted": Recorded()}, "of kind 'pooled', and 'deep-markov' was asked"),
        ("oracle", {}, "needs the run times beforehand"),
    ],
)
def test_a_rule_whose_model_or_times_are_missing_is_refused(name, options, words):
    with pytest.raises(ConfigError, match=words):
        rule(name, **options)
