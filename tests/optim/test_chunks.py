"""Steps on a large block in chunks are bitwise those of torch's optimizers on whole tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from outpace.blocks.block import Pieces, StepSettings, whole
from outpace.optim import Adam, AdamW, Sgd, Updater
from outpace.optim.torch_optimizers import CHUNK, KNOWN, TorchOptimizer, plain_settings
from outpace.sync.parameter_block import TensorBlock, parameter_block

# Three tensors, of which one is longer than four chunks, and one ends in the middle of a chunk.
SIZES = [1001, 4 * CHUNK + 77, CHUNK // 2 + 5]
SIZE = sum(SIZES)


def random(seed: int, size: int = SIZE) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def pieces(tensor: torch.Tensor) -> Pieces:
    return Pieces([part.clone() for part in torch.split(tensor, 2**16 + 8)])


@pytest.mark.parametrize(
    ("optimizer", "kind", "settings"),
    [
        (Sgd(lr=0.1, momentum=0.9), "SGD", {"momentum": 0.9}),
        (Sgd(lr=0.1, weight_decay=0.01), "SGD", {"weight_decay": 0.01}),
        (Sgd(lr=0.1, momentum=0.9, fused=True), "SGD", {"momentum": 0.9, "fused": True}),
        (Adam(lr=0.1), "Adam", {}),
        (Adam(lr=0.1, fused=True), "Adam", {"fused": True}),
        (AdamW(lr=0.1), "AdamW", {}),
        (AdamW(lr=0.1, fused=True), "AdamW", {"fused": True}),
    ],
)
def test_a_large_block_takes_bitwise_the_steps_of_torch(
    optimizer: Updater, kind: str, settings: dict[str, Any]
) -> None:
    variable = torch.nn.Parameter(random(0))
    plain = KNOWN[kind]([variable], lr=0.1, **settings)
    block = parameter_block(random(0), optimizer)
    for seed in (1, 2, 3):
        gradient = random(seed)
        variable.grad = gradient / 3
        plain.step()
        block.update(pieces(gradient) if seed == 2 else gradient, 3, None, 0.0)
        assert torch.equal(whole(block.read()), variable.detach())
    ours, theirs = block.optimizer_state().get(0, {}), plain.state.get(variable, {})
    assert list(ours) == list(theirs)
    for name, value in theirs.items():
        assert torch.equal(ours[name], value), name


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("SGD", {"momentum": 0.9, "nesterov": True, "maximize": True}),
        ("Adam", {"amsgrad": True, "weight_decay": 0.1}),
        ("AdamW", {"fused": True}),
        ("RMSprop", {"momentum": 0.9, "centered": True}),
        ("Adagrad", {"lr_decay": 0.1}),
        ("Adadelta", {}),
        ("Adamax", {}),
        ("NAdam", {}),
        ("RAdam", {}),
        ("ASGD", {}),
        ("Rprop", {}),
    ],
)
def test_a_script_with_groups_and_unused_tensors_takes_the_steps_of_torch(kind, settings):
    parameters = [torch.nn.Parameter(part.clone()) for part in random(0).split(SIZES)]
    plain = KNOWN[kind](
        [{"params": parameters[::2]}, {"params": [parameters[1]], "lr": 0.01}], lr=0.1, **settings
    )
    starts = [0, SIZES[0], SIZES[0] + SIZES[1]]
    places = [(n, low, low + size) for n, (low, size) in enumerate(zip(starts, SIZES, strict=True))]

    def current() -> list[dict[str, Any]]:
        return [plain_settings(group, plain.defaults) for group in plain.param_groups]

    def new(parameters: torch.Tensor) -> TensorBlock:
        made = TorchOptimizer(kind, [places[::2], [places[1]]], current())
        return TensorBlock(parameters, made)

    block = new(random(0))
    for seed, unused in enumerate([[2], [], [1], [], []]):
        plain.param_groups[0]["lr"] = 0.1 / (seed + 1)
        for number, part in enumerate(random(seed + 1).split(SIZES)):
            parameters[number].grad = None if number in unused else part.clone()
        plain.step()
        if seed == 3:  # continue from a copy, as after a checkpoint
            old, block = block, new(torch.zeros(SIZE))
            block.replace(old.read())
            block.load_optimizer_state(old.optimizer_state())
        block.update(pieces(random(seed + 1)), 1, StepSettings(current(), unused), 0.0)
    assert torch.equal(whole(block.read()), torch.cat([each.detach() for each in parameters]))
    state = block.optimizer_state()
    for number, variable in enumerate(parameters):
        for name, value in plain.state[variable].items():
            assert torch.equal(state[number][name], value), (number, name)


def test_readers_keep_what_they_have_read():
    block = TensorBlock(random(0), Adam(lr=0.1))
    read = []
    for seed in (1, 2, 3):
        block.update(pieces(random(seed)), 1, None, 0.0)
        assert block.read() is block.read()
        read.append((block.read(), whole(block.read()).clone()))
    for value, copy in read:
        assert torch.equal(whole(value), copy)
