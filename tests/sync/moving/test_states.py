"""What moves with a range of parameters is exactly what a shard of that range alone would have."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from outpace.blocks.block import Phantom, Pieces, whole
from outpace.blocks.division import Division, Range, Ranges, divided_anew, shared
from outpace.blocks.slicing import even_slices
from outpace.errors import ProtocolError
from outpace.optim import Adam, AdamW, Optimizer, Sgd
from outpace.optim.torch_optimizers import TorchOptimizer
from outpace.real.node.script_parts import ScriptParts
from outpace.sync import Asp, Bsp, Policy
from outpace.sync.checkpoint.state import ShardState
from outpace.sync.messages import Push
from outpace.sync.moving.states import joined, piece_of
from outpace.sync.parameter_block import parameter_block
from outpace.sync.shard import Shard

ELEMENTS, WORKERS = 23, 3
LAYERS = (5, 1, 10, 7)
SETTINGS: list[dict[str, Any]] = [{"lr": 0.01}, {"lr": 0.1}]


def of_script(part: Ranges) -> Optimizer:
    """Return Adam with two parameter groups, of the tensors 0 and 3, and of 1 and 2."""
    script = ScriptParts(LAYERS)
    script.learn("Adam", SETTINGS, [[(0, 0, 5), (3, 16, 23)], [(1, 5, 6), (2, 6, 16)]])
    made = script.of(part)
    return TorchOptimizer(made.optimizer, made.groups, made.settings)


OPTIMIZERS: dict[str, Callable[[Ranges], Optimizer]] = {
    "sgd": lambda _: Sgd(lr=0.1),
    "momentum": lambda _: Sgd(lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda _: Adam(lr=0.01),
    "adamw": lambda _: AdamW(lr=0.01),
    "script": of_script,
}


class Silent:
    """Ignores what a shard tells."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


class Run:
    """Shards under a division, which take the same pushes."""

    def __init__(self, division: Division, optimizer: str, policy: Policy) -> None:
        self.division, self.policy = division, policy
        self.optimizer, self.layers = OPTIMIZERS[optimizer], LAYERS if optimizer == "script" else ()
        start = torch.linspace(-1, 1, ELEMENTS)
        self.shards = {server: self._shard(server, start) for server in division.servers}

    def _shard(self, server: int, flat: torch.Tensor) -> Shard:
        made = self.optimizer(self.division.parts[server])
        block = parameter_block(self._part(server, flat), made)
        return Shard(server, block, WORKERS, self.policy, Silent())

    def _part(self, server: int, flat: torch.Tensor) -> torch.Tensor:
        return torch.cat([flat[low:high] for low, high in self.division.parts[server]])

    def push(self, worker: int, iteration: int, gradient: torch.Tensor) -> None:
        for server, shard in self.shards.items():
            push = Push(worker, iteration, shard.version, self._part(server, gradient))
            shard.receive(push, 0)

    def move(self, servers: set[int]) -> None:
        before, after = self.division, divided_anew(self.division, servers)
        states = {server: shard.state() for server, shard in self.shards.items()}
        self.division = after
        self.shards = {}
        for server, part in after.parts.items():
            pieces = []
            for owner, old in before.parts.items():
                if ranges := shared(old, part):
                    pieces.append((ranges, piece_of(states[owner], old, ranges, self.layers)))
            shard = self._shard(server, torch.zeros(ELEMENTS))
            state = joined(server, pieces, layers=self.layers)
            shard.restore(state, 0, everyone=False)
            self.shards[server] = shard

    def flat(self) -> torch.Tensor:
        found = torch.full((ELEMENTS,), torch.nan)
        for server, shard in self.shards.items():
            block, place = whole(shard.read()), 0
            for low, high in self.division.parts[server]:
                found[low:high] = block[place : place + high - low]
                place += high - low
        return found


def begin(optimizer: str, policy: Policy | None = None, servers: int = 2) -> Run:
    division = Division.of_slices(even_slices(ELEMENTS, servers))
    return Run(division, optimizer, policy or Bsp())


def same(one: ShardState, other: ShardState) -> bool:
    def plain(state: ShardState) -> Any:
        return replace(state, parameters=Phantom(0), optimizer={}, pending=())

    def tensors(state: ShardState) -> list[torch.Tensor]:
        found = [whole(state.parameters)]
        for values in state.optimizer.values():
            found += [torch.as_tensor(value) for value in values.values()]
        return found + [whole(value) for each in state.pending for _, value in each.parts]

    pairs = list(zip(tensors(one), tensors(other), strict=True))
    return plain(one) == plain(other) and all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("policy", [Bsp(), Asp()], ids=["bsp", "asp"])
def test_a_state_that_moves_there_and_back_is_bitwise_the_same(
    optimizer: str, policy: Policy
) -> None:
    run = begin(optimizer, policy, servers=1)
    noise = torch.Generator().manual_seed(1)
    for iteration in range(3):
        for worker in range(WORKERS - (iteration == 2)):  # the last iteration is not finished
            run.push(worker, iteration, torch.randn(ELEMENTS, generator=noise))
    before = run.shards[0].state()
    assert len(before.pending) == (policy.kind == "bsp")
    for servers in ({0, 1}, {0, 1, 2, 3}, {1, 3}, {0}):
        run.move(servers)
    assert same(run.shards[0].state(), before)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(OPTIMIZERS)),
    st.sampled_from([Bsp(), Asp()]),
    st.integers(0, 10**6),
    st.lists(st.sets(st.integers(0, 4), min_size=1, max_size=4), max_size=4),
)
def test_training_goes_on_bitwise_wherever_the_servers_change(
    optimizer: str, policy: Policy, seed: int, history: list[set[int]]
) -> None:
    undisturbed, moved = begin(optimizer, policy), begin(optimizer, policy)
    draw, noise = random.Random(seed), torch.Generator().manual_seed(seed)
    pushes = [(worker, iteration) for iteration in range(5) for worker in range(WORKERS)]
    moves = {draw.randrange(len(pushes)): servers for servers in history}
    for at, (worker, iteration) in enumerate(pushes):
        if at in moves:
            moved.move(moves[at])
        gradient = torch.randn(ELEMENTS, generator=noise)
        for run in undisturbed, moved:
            run.push(worker, iteration, gradient.clone())
    assert torch.equal(undisturbed.flat(), moved.flat())


def test_blocks_in_pieces_and_without_values_are_cut_too() -> None:
    state = begin("sgd", servers=1).shards[0].state()
    part, wanted = (Range(0, ELEMENTS),), [Range(2, 4), Range(9, 10)]
    cut = Pieces(torch.split(whole(state.parameters), 5))
    found = piece_of(replace(state, parameters=cut), part, wanted).parameters
    assert torch.equal(whole(found), whole(state.parameters)[[2, 3, 9]])
    phantom = replace(state, parameters=Phantom(4 * ELEMENTS))
    piece = piece_of(phantom, part, wanted)
    rest = piece_of(phantom, part, [Range(0, 2), Range(4, 9), Range(10, ELEMENTS)])
    assert piece.parameters == Phantom(12)
    assert joined(3, [(wanted, piece), ([Range(0, 2)], rest)]).parameters == Phantom(4 * ELEMENTS)


def test_shards_that_have_taken_other_pushes_are_not_joined() -> None:
    run = begin("momentum")
    run.shards[0].receive(Push(1, 0, 0, torch.ones(run.division.size(0))), 0)
    states = [shard.state() for shard in run.shards.values()]
    pieces = [(run.division.parts[server], state) for server, state in enumerate(states)]
    with pytest.raises(ProtocolError, match=r"their watermarks are \(-1, 0, -1\) and \(-1, -1"):
        joined(0, pieces)
    states[1] = replace(states[1], watermarks=(-1, 0, -1), pushes=1)
    pieces[1] = pieces[1][0], states[1]
    with pytest.raises(ProtocolError, match="added other gradients"):
        joined(0, pieces)


def test_a_tensor_of_a_script_that_only_some_shards_remember_is_not_joined() -> None:
    run = begin("script")
    for worker in range(WORKERS):
        run.push(worker, 0, torch.ones(ELEMENTS))
    states = [shard.state() for shard in run.shards.values()]
    assert set(states[0].optimizer) == {0, 1, 2}  # tensor 2 is cut at element 11
    assert set(states[1].optimizer) == {2, 3}
    states[1] = replace(states[1], optimizer={3: states[1].optimizer[3]})
    pieces = [(run.division.parts[server], state) for server, state in enumerate(states)]
    with pytest.raises(ProtocolError, match="their optimizers remember other things"):
        joined(0, pieces, layers=LAYERS)
