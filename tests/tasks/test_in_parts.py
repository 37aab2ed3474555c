"""Gradients in parts are bitwise equal to the result of `gradient`."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
import torch

from outpace.tasks import Task
from outpace.tasks.supervised import SupervisedWorkload


class Noisy(torch.utils.data.Dataset):
    """Samples that are drawn again at each reading, with all three generators."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        noise = torch.rand(4) + random.random() + np.random.random()
        return index * 0.01 + noise.float(), torch.tensor(float(index))


class Net(torch.nn.Module):
    """Three layers of 20, 30 and 6 parameters, and one that the loss does not depend on."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = torch.nn.Parameter(torch.ones(3))
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4), torch.nn.Linear(4, 6)])
        self.last = torch.nn.Linear(6, 1, bias=False)
        self.order: list[str] = []
        self.layers[0].weight.register_hook(lambda _: self.order.append("first layer"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.nn.functional.dropout(torch.tanh(layer(x)), 0.3, training=True)
        return self.last(x)[:, 0]


def workload(parts: int = 3) -> SupervisedWorkload:
    torch.manual_seed(1)
    task = Task(model=Net(), loss=torch.nn.functional.mse_loss, train=Noisy())
    made = SupervisedWorkload(task, workers=2, batch_size=4, seed=3)
    bounds = [made.size * n // parts for n in range(parts + 1)]
    made.cut([slice(a, b) for a, b in pairwise(bounds)])
    return made


@pytest.mark.parametrize("parts", [1, 3, 5])
def test_the_parts_are_bitwise_the_gradient_and_the_last_ones_come_first(parts):
    expected_loss, expected = workload(parts).gradient(workload(parts).initial_parameters(), 1, 7)
    made = workload(parts)
    order = made.model.order
    for _ in range(2):
        order.clear()
        found: dict[int, torch.Tensor] = {}

        def send(place: int, part: torch.Tensor, found=found) -> None:
            found[place] = part
            order.append(f"part {place}")

        loss = made.forward(made.initial_parameters(), 1, 7)
        made.backward(loss, send)
        assert loss.item() == expected_loss
        assert all(torch.equal(found[place], block) for place, block in enumerate(expected))
        sent = [each for each in order if each.startswith("part")]
        assert sent == [f"part {place}" for place in reversed(range(parts))]
        if parts == 5:  # the last layer and a bias: they are sent before the first layer is done
            assert order.index("part 4") < order.index("first layer")
    assert all(parameter.grad is None for parameter in made.model.parameters())
