"""A shard whose iterations somebody else ends: what counts, whenever it comes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support.shard_driver import Account

from outpace.errors import ProtocolError
from outpace.optim import Sgd
from outpace.sync import Bsp, CutOff, Scale
from outpace.sync.messages import Close, Leave, Pull, Push, SetPolicy
from outpace.sync.observer import Outcome
from outpace.sync.parameter_block import parameter_block
from outpace.sync.shard import Shard

WORKERS = 4


def shard_of(policy=None):
    account = Account()
    block = parameter_block(torch.zeros(WORKERS, dtype=torch.float64), Sgd(lr=1.0))
    policy = CutOff(scale=Scale.SUM) if policy is None else policy
    return Shard(0, block, WORKERS, policy, account), account


def one_hot(worker):
    return torch.nn.functional.one_hot(torch.tensor(worker), WORKERS).double()


def applied(shard):
    """Whose gradients are in the parameters, as often as they are."""
    return (-shard.read()).tolist()


@given(
    order=st.permutations([("push", worker) for worker in range(WORKERS)] + [("close", -1)]),
    counting=st.sets(st.integers(0, WORKERS - 1)),
    leaving=st.sets(st.integers(0, WORKERS - 1), max_size=WORKERS - 1),
)
def test_exactly_those_named_are_applied_in_whatever_order_all_comes(order, counting, leaving):
    shard, account = shard_of()
    came = set()
    for now, (what, worker) in enumerate(order):
        if what == "close":
            shard.receive(Close(0, sorted(counting)), now)
        elif worker in leaving:  # its gradient never comes
            shard.receive(Leave(worker), now)
        else:
            shard.receive(Push(worker, 0, 0, one_hot(worker)), now)
            shard.receive(Pull(worker, 0), now)
            came.add(worker)
    counted = counting & came
    assert applied(shard) == [float(worker in counted) for worker in range(WORKERS)]
    assert shard.clock == 1
    assert sorted(worker for worker, *_ in account.answered) == sorted(came)
    settled = {worker: outcome for worker, _, outcome, _ in account.settled}
    for worker in came:
        assert settled[worker] is (Outcome.APPLIED if worker in counted else Outcome.DROPPED)


def test_an_iteration_may_be_closed_before_the_one_before_it_is_finished():
    shard, _ = shard_of()
    shard.receive(Push(0, 0, 0, one_hot(0)), 0)
    shard.receive(Close(0, [0, 1]), 1)  # worker 1's gradient is still on its way
    shard.receive(Push(2, 1, 0, one_hot(2)), 2)
    shard.receive(Close(1, [2]), 3)
    assert shard.clock == 0
    shard.receive(Push(1, 0, 0, one_hot(1)), 4)
    assert shard.clock == 2
    assert applied(shard) == [1, 1, 1, 0]


@pytest.mark.parametrize(
    "close", [Close(0, [1]), Close(1, [WORKERS]), Close(1, [-1])], ids=["again", "unknown", "none"]
)
def test_an_illegal_end_changes_nothing(close):
    shard, account = shard_of()
    shard.receive(Push(0, 0, 0, one_hot(0)), 0)
    shard.receive(Close(0, [0]), 1)
    before = applied(shard), shard.clock, shard.version, list(account.settled)
    with pytest.raises(ProtocolError):
        shard.receive(close, 2)
    assert (applied(shard), shard.clock, shard.version, account.settled) == before


def test_other_policies_end_their_iterations_themselves():
    shard, _ = shard_of(Bsp())
    with pytest.raises(ProtocolError, match="closes its iterations itself"):
        shard.receive(Close(0, [0]), 0)


def test_what_is_held_back_is_applied_under_another_policy():
    shard, _ = shard_of()
    for worker in range(WORKERS - 1):
        shard.receive(Push(worker, 0, 0, one_hot(worker)), worker)
    shard.receive(SetPolicy(Bsp(scale=Scale.SUM)), WORKERS)
    assert shard.clock == 0
    shard.receive(Push(WORKERS - 1, 0, 0, one_hot(WORKERS - 1)), WORKERS)
    assert applied(shard) == [1.0] * WORKERS


def test_what_nobody_named_is_pending_at_the_end():
    shard, account = shard_of()
    shard.receive(Push(0, 0, 0, one_hot(0)), 0)
    shard.close(5)
    assert account.settled == [(0, 0, Outcome.PENDING, -1)]
