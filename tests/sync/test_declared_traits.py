"""Declarations of a user's policy are respected; without one the worst case is assumed."""

from __future__ import annotations

import pytest

import outpace
from outpace.config.reading import experiment_from, sync_from
from outpace.engine.servers import is_exact, leaves_behind
from outpace.errors import OutpaceError

POLICIES = """\
from dataclasses import dataclass

from outpace.sync import Apply, Policy
from outpace.sync.decision import Decision, Reason


class Silent(Policy):
    apply = Apply.ON_ADVANCE

    def may_answer(self, pull, view):
        if pull.iteration <= view.clock - 1:
            return Decision(None, Reason.CONDITION, pull.iteration - view.clock)
        return Decision(pull.iteration + 1, Reason.CONDITION, pull.iteration - view.clock)


class Together(Silent):
    lockstep = True


class Quick(Silent):
    def patience_s(self, view):
        return 0.0 if view.reached >= 1 else float("inf")


class Weighing(Silent):
    uses_significance = True

    def may_answer(self, pull, view):
        view.significance(pull.worker)
        return super().may_answer(pull, view)


class Undeclared(Silent):
    def may_answer(self, pull, view):
        view.significance(pull.worker)
        return super().may_answer(pull, view)


class Whole(Silent):
    excludes = {"pull": "Whole waits for all", "conditions.pull": "Whole has its own"}


def always(pull, view):
    return True


def never(view):
    return False
"""
CONFIG = {
    "task": {"kind": "timing", "parameters": 100},
    "workers": 2,
    "servers": 2,
    "compute": {"kind": "constant", "mean_s": 0.1},
    "stop": {"iterations": 4},
}


@pytest.fixture
def mine(tmp_path):
    (tmp_path / "mine.py").write_text(POLICIES)
    return lambda name, **more: {
        **CONFIG,
        "sync": {"kind": "python", "target": f"{tmp_path}/mine.py:{name}"},
        **more,
    }


@pytest.mark.parametrize(
    ("name", "exact", "behind", "weighs"),
    [
        ("Silent", False, False, False),
        ("Together", True, False, False),
        ("Quick", False, True, False),
        ("Weighing", False, False, True),
    ],
)
def test_what_a_policy_declares_is_heeded(mine, name, exact, behind, weighs):
    experiment = experiment_from(mine(name), "test")
    followed = [each.policy for each in experiment.policies.initial()]
    assert is_exact(experiment) is exact
    assert leaves_behind(experiment) is behind
    assert [policy.uses_significance for policy in followed] == [weighs, weighs]


def test_of_a_condition_in_place_of_a_method_nothing_is_known(mine, tmp_path):
    pull, push = (
        {which: f"{tmp_path}/mine.py:{name}"}
        for which, name in (("pull", "always"), ("push", "never"))
    )
    for conditions, behind in ((pull, False), (push, True)):
        experiment = experiment_from(mine("Together", conditions=[conditions]), "test")
        assert not is_exact(experiment)
        assert leaves_behind(experiment) is behind
        assert experiment.policies.initial()[0].policy.uses_significance


def test_a_significance_that_is_not_computed_is_refused(mine):
    outpace.simulate(mine("Weighing"))
    with pytest.raises(OutpaceError, match="a policy that calls it declares uses_significance = T"):
        outpace.simulate(mine("Undeclared"))


def test_what_a_policy_excludes_is_refused_wherever_it_is_named(mine, tmp_path):
    """Once `Control` checked neither policies that are set later, nor policies of other servers."""
    late, words = mine("Whole")["sync"], "pull: Whole waits for all"
    data = {**mine("Silent"), "pull": {"quorum_percent": 50}}
    with pytest.raises(OutpaceError, match=words):
        outpace.simulate({**data, "sync_changes": [{"at_s": 0.1, "sync": late}]})
    with pytest.raises(OutpaceError, match=words):
        outpace.simulate(data, control=lambda run: run.set_policy("*", sync_from(late, "late")))
    mixed = {**CONFIG, "sync": [{"kind": "bsp"}, late]}
    with pytest.raises(OutpaceError, match="no pull condition can be set: Whole has its own"):
        outpace.simulate(mixed, control=lambda run: run.set_pull_condition("*", lambda *_: True))
