"""`scale: linear`: w <- w - d * lr * Updater(mean of d gradients), PSP-SGD, algorithm 1, line 13.

All values are worked out by hand for one parameter that starts at 1.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from outpace.optim import Adam, Optimizer, Sgd
from outpace.optim.torch_optimizers import TorchOptimizer
from outpace.sync import Asp, Bsp, PartialPush, Policy, Scale
from outpace.sync.messages import Push
from outpace.sync.parameter_block import parameter_block
from outpace.sync.shard import Shard
from outpace.testing.shard_driver import Account


def after(
    optimizer: Optimizer, policy: Policy, *iterations: list[float], workers: int = 2
) -> float:
    """Return the parameter after iterations in which the workers push these gradients."""
    block = parameter_block(torch.ones(1, dtype=torch.float64), optimizer)
    shard = Shard(0, block, workers, policy, Account())
    for iteration, gradients in enumerate(iterations):
        for worker, gradient in enumerate(gradients):
            value = torch.tensor([gradient], dtype=torch.float64)
            shard.receive(Push(worker, iteration, shard.version, value), iteration)
    return shard.read().item()


def test_adam_takes_a_step_for_every_gradient_at_once():
    # Adam's first step is lr * g / (|g| + eps), so lr whatever the gradient: 0.1, and by the
    # paper d = 2 times that. The sum of the gradients gives one step of 0.1.
    adam = Adam(lr=0.1)
    assert after(adam, Bsp(scale=Scale.LINEAR), [3.0, 5.0]) == pytest.approx(0.8, abs=1e-7)
    assert after(adam, Bsp(scale=Scale.SUM), [3.0, 5.0]) == pytest.approx(0.9, abs=1e-7)


def test_a_stale_gradient_is_divided_by_its_staleness():
    # The server has taken 0, 1, 2, 3, 4 steps; the gradients of 12 were computed at version 0, so
    # their staleness is 0 to 4 and the steps are 12, 12 / 1, 12 / 2, 12 / 3, 12 / 4 at lr 1.
    block = parameter_block(torch.zeros(1, dtype=torch.float64), Sgd(lr=1.0))
    shard = Shard(0, block, 1, Asp(scale=Scale.STALENESS), Account())
    found = [0.0]
    for iteration in range(5):
        value = torch.tensor([12.0], dtype=torch.float64)
        shard.receive(Push(0, iteration, 0, value), iteration)
        found.append(shard.read().item())
    steps = [before - after for before, after in pairwise(found)]
    assert steps == [12.0, 12.0, 6.0, 4.0, 3.0]


def test_the_number_of_gradients_is_that_of_the_iteration():
    # Quorum 1 of 2: the first iteration ends with one gradient (the second worker's comes too
    # late and is dropped). Momentum: b = 1, w = 1 - 1 * 0.1 * 1 = 0.9. Second iteration, again
    # one gradient: b = 0.5 * 1 + 1 = 1.5, w = 0.9 - 0.1 * 1.5 = 0.75.
    heavy = Sgd(lr=0.1, momentum=0.5)
    policy = PartialPush(1, scale=Scale.LINEAR)
    assert after(heavy, policy, [1.0, 7.0], [1.0, 7.0]) == pytest.approx(0.75)
    # With both gradients: b = 1, w = 1 - 2 * 0.1 = 0.8; b = 1.5, w = 0.8 - 2 * 0.1 * 1.5 = 0.5.
    assert after(heavy, Bsp(scale=Scale.LINEAR), [1.0, 1.0], [1.0, 1.0]) == pytest.approx(0.5)


def test_a_users_optimizer_has_its_own_rate_again_after_the_step():
    # Adam as above, from a script: two iterations of steps 2 * 0.1, at constant gradients.
    script = TorchOptimizer("Adam", [[(0, 0, 1)]], [{"lr": 0.1}])
    linear = Bsp(scale=Scale.LINEAR)
    assert after(script, linear, [3.0, 3.0]) == pytest.approx(0.8, abs=1e-7)
    assert after(script, linear, [3.0, 3.0], [3.0, 3.0]) == pytest.approx(0.6, abs=1e-7)
