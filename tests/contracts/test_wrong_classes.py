"""The checks of `outpace.testing` fail for wrong classes and describe the errors."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import outpace.testing
from outpace.cluster.laws import RunTimeLaw
from outpace.errors import ConfigError
from outpace.real.process.local import LocalLauncher
from outpace.sync import Decision, PeerStrategy, Policy, Reason, iterations
from outpace.sync.policy import bounded


@dataclass(frozen=True)
class MyPolicy(Policy):
    """SSP without errors."""

    staleness: int = 2

    def may_answer(self, pull, view):
        return bounded(pull, view, self.staleness)


class TooGenerous(MyPolicy):
    def may_answer(self, pull, view):
        return bounded(pull, view, self.staleness + 1)


class NeverAnswers(MyPolicy):
    def may_answer(self, pull, view):
        return Decision(10**6, Reason.BEYOND_BOUND, pull.iteration - view.clock)


class Rolls(MyPolicy):
    def may_answer(self, pull, view):
        return bounded(pull, view, random.randrange(3))


class Hurries(MyPolicy):
    def patience_s(self, view):
        return -1.0


@dataclass
class NotFrozen:
    pass


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (TooGenerous(), r"no pull of iteration i is answered unless i < V \+ 2"),
        (NeverAnswers(), "every pull is answered"),
        (Rolls(4), "the same messages have the same answers"),
        (Hurries(), "or a float, the seconds to wait, at least 0, not -1.0"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_wrong_policy_is_named_with_the_steps_that_show_it(policy, words):
    bound = 2 if isinstance(policy, TooGenerous) else None
    with pytest.raises(AssertionError, match=words) as caught:
        outpace.testing.check_policy(policy, bound=bound)
    assert "with" in str(caught.value)
    assert "worker 0: " in str(caught.value)


def test_a_right_policy_of_a_user_passes():
    outpace.testing.check_policy(MyPolicy(3), bound=3)
    with pytest.raises(ConfigError, match="must derive from outpace"):
        outpace.testing.check_policy(NotFrozen())


def test_a_class_in_place_of_its_object_or_of_the_other_kind_is_refused_in_words():
    for check, own in (
        (outpace.testing.check_policy, MyPolicy),
        (outpace.testing.check_strategy, MyStrategy),
    ):
        with pytest.raises(ConfigError, match="is a class: give an object of it"):
            check(own)
    with pytest.raises(ConfigError, match=r"MyPolicy is a strategy with servers: .*check_policy"):
        outpace.testing.check_strategy(MyPolicy())


@dataclass(frozen=True)
class MyStrategy(PeerStrategy):
    """All-reduce without errors."""

    averages_gradients: ClassVar[bool] = True

    def value(self, iteration):
        return iteration.gradient

    async def train(self, me):
        model = me.common()
        async for iteration in iterations(me, model):
            reduced = await me.begin_all_reduce(self.value(iteration)).result()
            model.commit(reduced.mean, 1, reduced.weight)


class LosesAnIteration(MyStrategy):
    async def train(self, me):
        model = me.common()
        async for iteration in iterations(me, model):
            if me.worker == 1 and iteration.number == 5:
                break
            model.commit((await me.begin_all_reduce(iteration.gradient).result()).mean, 1, 1)


class TossesACoin(MyStrategy):
    async def train(self, me):
        model = me.common()
        async for iteration in iterations(me, model):
            reduced = await me.begin_all_reduce(iteration.gradient).result()
            model.commit(reduced.mean * random.random(), 1, reduced.weight)


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        (LosesAnIteration(), "every worker runs each of its iterations once"),
        (TossesACoin(), "one seed has one result"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_wrong_strategy_without_servers_is_named(strategy, words):
    with pytest.raises(AssertionError, match=words):
        outpace.testing.check_strategy(strategy)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotReproducible(RunTimeLaw):
    def shape(self):
        fresh = np.random.default_rng()
        return lambda source, n: fresh.exponential(1.0, n)


class InOrder:
    """Draws when it is called, so the results depend on the order of calls."""

    def run_time(self, seed, workers, iterations=None):
        source = np.random.default_rng(seed)
        return lambda worker, iteration, now: float(source.exponential())


@pytest.mark.parametrize(
    ("law", "words"),
    [
        (NotReproducible(mean_s=1.0), "the same seed has the same run times"),
        (InOrder(), "in whatever order they are asked"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_wrong_law_is_named(law, words):
    with pytest.raises(AssertionError, match=words):
        outpace.testing.check_law(law)


class MyTracker:
    """A correct tracker: accepts everything."""

    def config(self, values):
        self.values = values

    def log(self, values, step):
        self.values = values

    def finish(self, status):
        pass


class RaisesAtFinish(MyTracker):
    def finish(self, status):
        if status == "failed":
            raise ConnectionError("no server")


class Draws(MyTracker):
    def log(self, values, step):
        random.random()


@pytest.mark.parametrize(
    ("tracker", "words"),
    [
        (RaisesAtFinish, r"raised ConnectionError: no server .*\n.*finish\('failed'\)"),
        (Draws, "draws no random number"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_wrong_tracker_is_named(tracker, words):
    outpace.testing.check_tracker(MyTracker)
    with pytest.raises(AssertionError, match=words):
        outpace.testing.check_tracker(tracker)


class LeavesProcesses(LocalLauncher):
    """Forgets to end its processes; the tests end them."""

    made: ClassVar[list[LeavesProcesses]] = []

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.made.append(self)

    def stop(self, *, at_once=True):
        pass


@pytest.mark.slow
def test_a_launcher_that_leaves_processes_is_named():
    try:
        with pytest.raises(AssertionError, match="no process outlives `stop`"):
            outpace.testing.check_launcher(LeavesProcesses)
    finally:
        for launcher in LeavesProcesses.made:
            LocalLauncher.stop(launcher)


def test_the_checks_are_imported_on_first_use_and_need_no_test_framework():
    code = (
        "import sys, outpace.testing\n"
        "assert 'torch' not in sys.modules\n"
        "outpace.testing.check_tracker, outpace.testing.check_policy\n"
        "assert not {'pytest', 'hypothesis', '_pytest'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
