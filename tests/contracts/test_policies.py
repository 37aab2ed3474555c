"""Promises of every policy. A new policy joins by one line in CASES."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import pytest

from outpace.config.reading import experiment_from, to_plain
from outpace.sync import (
    POLICIES,
    Apply,
    Asp,
    Bsp,
    Buffer,
    Coin,
    CutOff,
    Draw,
    DropStragglers,
    Dsps,
    DynamicPssp,
    PartialPush,
    Policy,
    PspSampling,
    Pssp,
    Ssp,
)
from outpace.testing import check_policy


@dataclass(frozen=True)
class Case:
    """A policy and what it promises: no pull of iteration i is answered unless i < V + bound."""

    policy: Policy
    bound: int | None


CASES = [
    Case(Bsp(), bound=0),
    Case(Bsp(buffer=Buffer.SOFT), bound=0),
    Case(Bsp(apply=Apply.ON_ARRIVAL), bound=0),
    Case(Asp(), bound=None),
    Case(Asp(apply=Apply.ON_ADVANCE), bound=None),
    Case(Ssp(0), bound=0),
    Case(Ssp(3), bound=3),
    Case(Ssp(3, buffer=Buffer.SOFT), bound=3),
    Case(Ssp(1, apply=Apply.ON_ADVANCE), bound=1),
    Case(Pssp(2, 0.0), bound=None),
    Case(Pssp(2, 0.5), bound=None),
    Case(Pssp(2, 0.7, coin=Coin.SERVER, buffer=Buffer.SOFT), bound=None),
    Case(Pssp(2, 0.7, draw=Draw.LEAD), bound=None),
    Case(Pssp(2, 1.0, draw=Draw.LEAD, buffer=Buffer.SOFT), bound=2),
    Case(Pssp(2, 1.0), bound=2),
    Case(Pssp(2, 1.0, buffer=Buffer.SOFT), bound=2),
    Case(DynamicPssp(1), bound=None),
    Case(DynamicPssp(1, alpha="significance", buffer=Buffer.SOFT), bound=None),
    Case(Dsps(1, extra=3), bound=4),
    Case(Dsps(2, extra=0), bound=2),
    Case(Dsps(1, extra=2, buffer=Buffer.SOFT), bound=3),
    Case(DropStragglers(2), bound=0),
    Case(PartialPush(2), bound=0),
    Case(PartialPush(2, timeout_s=3e-9), bound=0),  # the suite's clock counts nanoseconds
    Case(PspSampling(0), bound=None),
    Case(PspSampling(1), bound=None),
    Case(PspSampling(2, staleness=2), bound=None),
    Case(PspSampling(4, staleness=1), bound=1),  # all others, however many
    Case(CutOff(), bound=0),
]
every_policy = pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.policy))


def test_every_policy_is_in_the_suite():
    assert {case.policy.kind for case in CASES} == set(POLICIES)


@every_policy
def test_every_policy_keeps_its_promises(case):
    check_policy(case.policy, bound=case.bound)


@every_policy
def test_a_policy_survives_yaml(case):
    plain = {
        "task": {"kind": "timing"},
        "workers": 5,
        "compute": {"kind": "constant", "mean_s": 1.0},
        "stop": {"iterations": 1},
        "sync": dataclasses.asdict(case.policy),
    }
    experiment = experiment_from(plain, "test")
    assert experiment.sync == case.policy
    assert experiment_from(to_plain(experiment), "test") == experiment
