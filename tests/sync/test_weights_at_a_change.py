"""The weight of an iteration whose gradients arrive partly before and partly after a change.

With `scale: mean` every complete iteration moves the parameters by one step along the mean of its N
gradients, whatever the policies. On arrival each gradient is divided by N (FluentPS, algorithm 1),
so k gradients make k/N of a step; the other N - k gradients, collected until the iteration ends,
must make the rest. Here every gradient is 1, the learning rate is 1 and w starts at 0: after one
iteration w = -1, after two w = -2.
"""

from __future__ import annotations

from itertools import product

import pytest
import torch

from outpace.optim import Sgd
from outpace.sync import (
    Apply,
    Asp,
    Bsp,
    CutOff,
    DropStragglers,
    Ssp,
)
from outpace.sync.messages import Close, Push, SetPolicy
from outpace.sync.parameter_block import parameter_block
from outpace.sync.shard import Shard
from outpace.testing.shard_driver import Account

WORKERS = 4
# One example of each way in which gradients reach the parameters.
POLICIES = [
    Asp(apply=Apply.ON_ARRIVAL),
    Bsp(apply=Apply.ON_ADVANCE),
    Ssp(1, apply=Apply.ON_ADVANCE),
    DropStragglers(WORKERS),
    CutOff(),
]


def name(policy):
    return f"{policy.kind} {policy.apply.value}"


@pytest.mark.parametrize(("before", "after"), list(product(POLICIES, repeat=2)), ids=name)
@pytest.mark.parametrize("early", [1, 3])
def test_every_iteration_has_one_step_in_all(before, after, early):
    block = parameter_block(torch.zeros(1, dtype=torch.float64), Sgd(lr=1.0))
    shard = Shard(0, block, WORKERS, before, Account())

    def push(worker, iteration):
        return Push(worker, iteration, 0, torch.ones(1, dtype=torch.float64))

    messages = [
        *(push(worker, 0) for worker in range(early)),
        push(0, 1),  # worker 0 is an iteration ahead at the change
        SetPolicy(after),
        *(push(worker, 0) for worker in range(early, WORKERS)),
        *(push(worker, 1) for worker in range(1, WORKERS)),
    ]
    if after.cut_off:
        messages += [Close(iteration, range(WORKERS)) for iteration in range(2)]
    for now, message in enumerate(messages):
        shard.receive(message, now)
    assert shard.clock == 2
    assert shard.read().item() == pytest.approx(-2.0, abs=1e-12)
