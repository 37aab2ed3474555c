"""A cold start: decisions before a model is fitted to the run, and after."""

from __future__ import annotations

import numpy as np
import pytest

from outpace.errors import ConfigError, RunError
from outpace.predict.interface import Wait
from outpace.predict.replay import replay
from outpace.predict.rules.baselines import Fixed
from outpace.predict.rules.comparing import Hedge
from outpace.predict.rules.making import make_rule
from outpace.predict.rules.settings import CutOffSettings
from outpace.predict.rules.wrappers import Learning

NODE = np.arange(6) // 2
TIMES = np.random.default_rng(5).lognormal(0, 0.3, (30, 6))


class Stub:
    kind = "stub"


class After:
    """Fits that take this many iterations; the n-th fit fails."""

    def __init__(self, iterations: int, fails: Exception | None = None, which: int = 1) -> None:
        self.takes, self.fails, self.which = iterations, fails, which
        self.histories = []
        self.model = None

    def start(self, history):
        self.histories.append(history)
        self.left = self.takes

    def done(self):
        if self.left:
            self.left -= 1
            return False
        if self.fails is not None and len(self.histories) == self.which:
            raise self.fails
        self.model = Stub()
        return True


class Watching:
    """Waits for two, and keeps its observations."""

    def __init__(self):
        self.seen = []

    def begin(self):
        return Wait(count=2)

    def observe(self, seconds, censored, ended_s):
        self.seen.append((seconds.tolist(), censored.tolist(), ended_s))


def learning(fitting, made, **options):
    other = Fixed(Wait(count=4))
    return Learning(other, fitting, lambda *_: made, node=NODE, warmup=10, **options)


@pytest.mark.parametrize("takes", [0, 1, 7])
def test_all_then_the_last_iterations_then_the_model(takes):
    fitting, noted = After(takes), []
    done = replay(learning(fitting, Watching(), note=noted.append), TIMES)
    assert done.count.tolist() == [6] * 10 + [4] * takes + [2] * (20 - takes)
    assert noted == [
        f"a stub model was fitted to 10 iterations; it decides from iteration {10 + takes} on"
    ]


def test_the_rule_that_is_made_has_observed_the_whole_run():
    made = Watching()
    replay(learning(After(5), made), TIMES)
    assert len(made.seen) == len(TIMES)
    full, partly = made.seen[3], made.seen[12]
    assert full[0] == TIMES[3].tolist()
    assert sum(partly[1]) == 2  # four of the six workers were waited for


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (ConfigError("too few"), "too few"),
        (RunError("ended"), "ended"),
        (KeyError("a"), "KeyError: 'a'"),
    ],
)
def test_a_fit_that_fails_is_said_once_and_the_last_iterations_go_on(error, why):
    said, noted = [], []
    rule = learning(After(2, error), Watching(), say=said.append, note=noted.append)
    assert replay(rule, TIMES).count.tolist() == [6] * 10 + [4] * 20
    assert said == [f"no model could be fitted, the last iterations will decide: {why}"]
    assert not noted


LONG = np.random.default_rng(6).lognormal(0, 0.3, (260, 6))


def test_it_is_fitted_again_whenever_the_run_is_three_times_as_long():
    fitting, made, noted = After(4), [], []
    other = Fixed(Wait(count=4))

    def make(model, observes):
        made.append(Watching())
        return made[-1]

    rule = Learning(other, fitting, make, node=NODE, warmup=10, note=noted.append)
    replay(rule, LONG)
    assert [history.iterations for history in fitting.histories] == [10, 30, 90]
    assert [text.split()[-2] for text in noted] == ["14", "34", "94"]
    assert len(made[1].seen) == 94  # all of the run, until the third took over
    assert len(made[2].seen) == 260


def test_if_a_later_fit_fails_the_model_that_is_there_goes_on():
    said = []
    rule = learning(After(0, ConfigError("no"), which=2), Watching(), say=said.append)
    assert replay(rule, LONG).count.tolist() == [6] * 10 + [2] * 250
    assert said == ["no model could be fitted, the earlier one will decide: no"]


def hedge_without_a_model(warmup):
    names = ("last-20", "last-5", "early-20")
    rules = [make_rule(CutOffSettings(name, warmup=0), node=NODE) for name in names]
    return Hedge(rules, warmup=warmup)


def test_by_name_it_is_the_hedge_without_a_model_from_the_second_iteration_until_it_is_fitted():
    fitting = After(10)
    rule = make_rule(CutOffSettings(), node=NODE, fitting=fitting)
    counts = replay(rule, TIMES).count.tolist()
    assert counts == replay(hedge_without_a_model(0), TIMES).count.tolist()
    assert counts[0] == 6
    assert min(counts[1:20]) < 6
    (history,) = fitting.histories
    assert history.iterations == 20
    assert history.censored.any()
