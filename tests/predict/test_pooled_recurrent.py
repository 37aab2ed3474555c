"""The pooled model's recurrent layer and optimizer are those of torch, in fewer calls."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from outpace.predict.fitting import Adam
from outpace.predict.pooled.recurrent import recurrent


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_the_layer_is_torchs_gru_and_so_are_its_derivatives(steps: int) -> None:
    torch.manual_seed(0)
    layer = nn.GRU(3, 4).double()
    inputs = torch.randn(steps, 6, 3, dtype=torch.float64, requires_grad=True)
    state = torch.randn(6, 4, dtype=torch.float64)
    weights = torch.randn(steps, 6, 4, dtype=torch.float64)
    expected = layer(inputs, state[None])[0]
    found = recurrent(inputs, state, *layer.parameters())
    torch.testing.assert_close(found, expected)
    variables = [inputs, *layer.parameters()]
    torch.testing.assert_close(*(_slopes(each * weights, variables) for each in (found, expected)))


@pytest.mark.parametrize("size", [0.1, 100.0], ids=["small gradients", "clipped gradients"])
def test_the_optimizer_is_torchs_adam_with_clipped_gradients(size: float) -> None:
    torch.manual_seed(0)
    one, other = (nn.Linear(5, 3).double() for _ in range(2))
    other.load_state_dict(one.state_dict())
    ours = Adam(one.parameters(), longest=1.0, betas=(0.9, 0.98))
    theirs = torch.optim.Adam(other.parameters(), betas=(0.9, 0.98))
    for step in range(1, 6):
        inputs = torch.randn(7, 5, dtype=torch.float64)
        ours.step(size * one(inputs).square().mean(), 0.01 * step)
        theirs.param_groups[0]["lr"] = 0.01 * step
        theirs.zero_grad()
        (size * other(inputs).square().mean()).backward()
        nn.utils.clip_grad_norm_(other.parameters(), 1.0)
        theirs.step()
    torch.testing.assert_close(one.state_dict(), other.state_dict())


def _slopes(values: Tensor, variables: list[Tensor]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(values.sum(), variables)
