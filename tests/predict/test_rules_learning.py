"""A cold start: what is decided before a model is fitted to the run, and after."""

from __future__ import annotations

import numpy as np
import pytest

from outpace.errors import ConfigError, RunError
from outpace.predict.interface import Wait
from outpace.predict.replay import replay
from outpace.predict.rules.fixed import Fixed
from outpace.predict.rules.learning import Learning
from outpace.predict.rules.making import make_rule

NODE = np.arange(6) // 2
TIMES = np.random.default_rng(5).lognormal(0, 0.3, (40, 6))


class Stub:
    kind = "stub"


class After:
    """A fit that takes so many iterations, or fails."""

    def __init__(self, iterations: int, fails: Exception | None = None) -> None:
        self.left, self.fails = iterations, fails
        self.histories = []

    def start(self, history):
        self.histories.append(history)

    def model(self):
        if self.left:
            self.left -= 1
            return None
        if self.fails is not None:
            raise self.fails
        return Stub()


class Watching:
    """Waits for two, and keeps what it is shown."""

    def __init__(self):
        self.seen = []

    def begin(self):
        return Wait(count=2)

    def observe(self, seconds, censored, ended_s):
        self.seen.append((seconds.tolist(), censored.tolist(), ended_s))


def learning(fitting, made, **options):
    other = Fixed(Wait(count=4))
    return Learning(fitting, lambda _: made, other, node=NODE, warmup=10, **options)


@pytest.mark.parametrize("takes", [0, 1, 7])
def test_all_then_the_last_iterations_then_the_model(takes):
    fitting, noted = After(takes), []
    done = replay(learning(fitting, Watching(), note=noted.append), TIMES)
    assert done.count.tolist() == [6] * 10 + [4] * takes + [2] * (30 - takes)
    assert noted == [
        "a stub model was fitted to the first 10 iterations; it decides from iteration "
        f"{10 + takes} on"
    ]


def test_it_is_fitted_once_to_the_warm_up():
    fitting = After(3)
    replay(learning(fitting, Watching()), TIMES)
    (history,) = fitting.histories
    assert history.seconds.tolist() == TIMES[:10].tolist()
    assert not history.censored.any()
    assert history.node.tolist() == NODE.tolist()


def test_the_rule_that_is_made_has_observed_the_whole_run():
    made = Watching()
    replay(learning(After(5), made), TIMES)
    assert len(made.seen) == len(TIMES)
    full, partly = made.seen[3], made.seen[12]
    assert full[0] == TIMES[3].tolist()
    assert sum(partly[1]) == 2  # of the six, four were waited for


@pytest.mark.parametrize("error", [ConfigError("too few"), RunError("ended"), OSError("none")])
def test_a_fit_that_fails_is_said_once_and_the_last_iterations_go_on(error):
    said, noted = [], []
    rule = learning(After(2, error), Watching(), say=said.append, note=noted.append)
    assert replay(rule, TIMES).count.tolist() == [6] * 10 + [4] * 30
    assert said == [f"no model could be fitted, the last iterations decide: {error}"]
    assert not noted


def test_by_name_it_is_last_20_until_then():
    fitting = After(10**9)
    rule = make_rule("pooled", node=NODE, fitting=fitting)
    assert replay(rule, TIMES).count.tolist() == (
        replay(make_rule("last-20", node=NODE), TIMES).count.tolist()
    )
