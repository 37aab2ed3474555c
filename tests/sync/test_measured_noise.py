"""A shard's estimates of the noise and the signal in gradients, by hand."""

from __future__ import annotations

import pytest
import torch
from tests.support.shard_driver import Account

from outpace.optim import Sgd
from outpace.sync import Asp, DropStragglers, Policy
from outpace.sync.messages import Push
from outpace.sync.parameter_block import parameter_block
from outpace.sync.shard import Shard


def measured(policy: Policy, gradients: list[tuple[float, float]], workers: int):
    """Return what a shard measures in an iteration with these gradients, and its parameters."""
    block = parameter_block(torch.zeros(2, dtype=torch.float64), Sgd(lr=1.0))
    shard = Shard(0, block, workers, policy, Account())
    found = []
    shard.measure_noise(lambda *estimates: found.append(estimates))
    for worker, gradient in enumerate(gradients):
        shard.receive(Push(worker, 0, 0, torch.tensor(gradient, dtype=torch.float64)), 0)
    return found, shard.read()


@pytest.mark.parametrize(
    ("gradients", "noise", "signal"),
    [
        ([(1.0, 1.0), (1.0, 1.0)], 0.0, 2.0),
        ([(1.0, 0.0), (0.0, 1.0)], 1.0, 0.0),
        ([(3.0, 0.0), (0.0, 0.0), (0.0, 0.0)], 3.0, 0.0),
        # |g|² is 4 and 16, their mean 10; the mean of the gradients is 3: noise 2·(10 - 9).
        ([(2.0, 0.0), (4.0, 0.0)], 2.0, 8.0),
    ],
)
def test_noise_and_signal_are_those_of_the_gradients_of_an_iteration(gradients, noise, signal):
    count = len(gradients)
    found, read = measured(DropStragglers(count), gradients, count)
    assert found == [pytest.approx((noise, signal), abs=1e-6)]
    assert read.tolist() == pytest.approx(
        [-sum(each) / count for each in zip(*gradients, strict=True)]
    )


def test_gradients_beyond_the_quorum_do_not_count():
    gradients = [(1.0, 0.0), (0.0, 1.0), (100.0, 0.0)]
    found, _ = measured(DropStragglers(2), gradients, 3)
    assert found == [pytest.approx((1.0, 0.0), abs=1e-6)]


def test_one_gradient_says_nothing_and_gradients_one_by_one_are_not_measured():
    assert measured(DropStragglers(1), [(1.0, 0.0)], 2)[0] == []
    assert measured(Asp(), [(1.0, 0.0), (0.0, 1.0)], 2)[0] == []
