"""Parameters of a shard: steps along gradients in one piece and in several."""

from __future__ import annotations

import pytest
import torch

from outpace.blocks.block import Phantom, Pieces, whole
from outpace.optim import Sgd
from outpace.sync.parameter_block import ParameterBlock, parameter_block, plus

LARGE = 3 * 2**18 + 5  # elements: several of the pieces in which a large block is worked on


def random(elements: int, seed: int) -> torch.Tensor:
    return torch.randn(elements, generator=torch.Generator().manual_seed(seed))


def pieces(tensor: torch.Tensor, size: int) -> Pieces:
    return Pieces([part.clone() for part in torch.split(tensor, size)])


def plain_steps(initial: torch.Tensor, gradients: list[torch.Tensor], sgd: Sgd) -> torch.Tensor:
    variable = torch.nn.Parameter(initial.clone())
    optimizer = torch.optim.SGD([variable], lr=sgd.lr, momentum=sgd.momentum)
    for gradient in gradients:
        variable.grad = gradient.clone()
        optimizer.step()
    return variable.detach()


@pytest.mark.parametrize("elements", [1, 1000, LARGE])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize(
    "cuts",
    [
        (None, None, None),  # each gradient in one piece
        (2**18, 2**18, 2**18),
        (2**18, 1000, None),  # divided differently from the parameters
        (None, 2**18, 2**18),
    ],
)
def test_steps_are_those_of_torch_however_the_gradients_are_cut(elements, momentum, cuts):
    sgd = Sgd(lr=0.1, momentum=momentum)
    initial = random(elements, 0)
    gradients = [random(elements, seed) for seed in (1, 2, 3)]
    block = parameter_block(initial, sgd)
    for gradient, cut in zip(gradients, cuts, strict=True):
        assert block.update(
            gradient.clone() if cut is None else pieces(gradient, cut), 1, None, 0.0
        )
    assert torch.equal(whole(block.read()), plain_steps(initial, gradients, sgd))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("cut", [None, 2**18])
@pytest.mark.parametrize("place", [0, LARGE // 2, LARGE - 1])
def test_it_knows_when_a_parameter_is_not_finite_any_more(momentum, cut, place):
    def block() -> ParameterBlock:
        return parameter_block(torch.zeros(LARGE), Sgd(lr=1.0, momentum=momentum))

    gradient = torch.ones(LARGE)
    assert block().update(some(gradient.clone(), cut), 1, None, 0.0)
    gradient[place] = float("inf")
    assert not block().update(some(gradient, cut), 1, None, 0.0)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_process_that_sent_a_gradient_in_shared_memory_cannot_change_the_parameters(momentum):
    block = parameter_block(torch.zeros(LARGE), Sgd(lr=1.0, momentum=momentum))
    shared = torch.ones(LARGE)
    assert block.update(Pieces(torch.split(shared, 2**18), is_shared=True), 1, None, 0.0)
    shared.fill_(5.0)
    assert torch.equal(whole(block.read()), torch.full((LARGE,), -1.0))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_replaced_parameters_go_on_with_what_the_optimizer_has_gathered(momentum):
    block = parameter_block(torch.zeros(1), Sgd(lr=1.0, momentum=momentum))
    block.update(torch.ones(1), 1, None, 0.0)
    given = torch.full((1,), 5.0)
    block.replace(given)
    assert whole(block.read()).item() == 5.0
    block.update(torch.ones(1), 1, None, 0.0)
    assert whole(block.read()).item() == pytest.approx(5.0 - (1.0 + momentum))
    assert given.item() == 5.0  # memory that this block must not change
    block.replace(torch.full((1,), float("nan")))
    assert not block.update(torch.ones(1), 1, None, 0.0)


@pytest.mark.parametrize("cut", [None, 1000])
def test_a_copy_and_a_sum_have_memory_of_their_own(cut):
    one, other = random(2500, 0), random(2500, 1)
    value, kept = some(one.clone(), cut), some(other.clone(), cut)
    copy, less = value.clone(), plus(value, -1, kept)
    for part in value.parts if isinstance(value, Pieces) else [value]:
        part.zero_()
    assert torch.equal(whole(copy), one)
    assert torch.equal(whole(less), one - other)
    assert torch.equal(whole(kept), other)
    assert plus(Phantom(8), 1, Phantom(8)) == Phantom(8)


def some(gradient: torch.Tensor, cut: int | None) -> torch.Tensor | Pieces:
    return gradient if cut is None else pieces(gradient, cut)
