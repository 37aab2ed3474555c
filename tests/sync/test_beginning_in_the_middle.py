"""Workers that go on from saved shards: nothing counts twice, nobody waits for ever.

Shards of a run that is not exact are saved at different times, so some have gradients that others
lack. These are lost, and no others.
"""

from __future__ import annotations

import pytest
from benchmarks.papers.fluentps.global_barrier import GlobalBarrier
from benchmarks.papers.fluentps.ssptable import SspTable
from tests.support.ledger import Ledger

from outpace.support.units import nanoseconds
from outpace.sync import (
    Apply,
    Asp,
    Bsp,
    CutOff,
    DropStragglers,
    Dsps,
    PartialPush,
    PspSampling,
    Pssp,
    Scale,
    Ssp,
)
from outpace.sync.checkpoint.state import aligned, first_iteration, gaps

SUM = Scale.SUM
POLICIES = {
    "ssp": Ssp(1, scale=SUM),
    "ssp, on advance": Ssp(2, apply=Apply.ON_ADVANCE, scale=SUM),
    "asp": Asp(scale=SUM),
    "pssp": Pssp(1, 0.5, scale=SUM),
    "dsps": Dsps(1, 2, scale=SUM),
    "psp-sampling": PspSampling(2, 1, scale=SUM),
    "ssptable": SspTable(2, scale=SUM),
    "drop-stragglers": DropStragglers(2, scale=SUM),
    "partial-push": PartialPush(2, timeout_s=0.03, scale=SUM),
    "cutoff": CutOff(scale=SUM),
    "global barrier": GlobalBarrier(Bsp(scale=SUM)),
    "global barrier, ssp": GlobalBarrier(Ssp(1, scale=SUM)),
}
LATE = ("drop-stragglers", "partial-push", "cutoff")  # what comes too late is dropped


def gone_on(policy, seed, at_s, apart_s, **more):
    """Return a run that is saved, server by server, and the run that goes on from there."""
    before = Ledger(policy, seed=seed, **more)
    for server, cuts in enumerate(before.cuts):
        before.kernel.call_at(nanoseconds(at_s + server * apart_s), cuts.ask, 1)
    before.run(at_s + apart_s)
    states = [before.saved[1][server] for server in range(2)]
    if policy.cut_off is not None:
        states = aligned(states)
    first = [first_iteration(worker, states) for worker in range(3)]
    after = Ledger(policy, seed=seed + 1, states=states, first=first, **more)
    return states, after


@pytest.mark.parametrize("apart_s", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("kind", POLICIES)
def test_what_some_shards_have_and_others_lack_is_lost_and_nothing_else(kind, apart_s):
    for seed in range(3):
        states, after = gone_on(POLICIES[kind], seed, 0.15, apart_s)
        counts = after.run().counts()
        assert counts.max() == 1
        lacking = int((counts != counts.amax(0)).any(0).sum())
        absent = int((counts.amax(0) == 0).sum())
        if kind not in LATE:
            assert (lacking, absent) == (gaps(states), 0)


@pytest.mark.parametrize("kind", [*POLICIES, "bsp"])
def test_a_worker_that_dies_costs_at_most_its_push_in_flight(kind):
    """It dies while it computes, and after each message of iteration 3."""
    policy = {"bsp": Bsp(scale=SUM), **POLICIES}[kind]
    for sent in range(6):
        counts = Ledger(policy, seed=sent, dies=(1, 3, sent)).run().counts()
        assert counts.max() == 1
        lacking = [tuple(pair) for pair in (counts == 0).any(0).nonzero().tolist()]
        if kind not in LATE:
            assert set(lacking) <= {(1, 3)}
            assert sent or not lacking  # what no server has got is computed again
