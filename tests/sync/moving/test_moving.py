"""Servers join and leave in virtual time: nothing is lost, nothing counts twice, bounds hold."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sync.moving.moving_cluster import MovingCluster, Silent

from outpace.blocks.division import Division, Range
from outpace.errors import ProtocolError
from outpace.optim import Adam, Optimizer, Sgd
from outpace.sync import Asp, Bsp, Dsps, Policy, Pssp, Ssp
from outpace.sync.messages import Divided, GoOver, Leave, Moved, Push
from outpace.sync.moving.server import Moves
from outpace.sync.parameter_block import parameter_block
from outpace.sync.shard import Shard

SEEDS = st.integers(0, 10**6)
MOVES = st.lists(
    st.tuples(st.floats(0, 2), st.sets(st.integers(0, 4), min_size=1, max_size=4)),
    min_size=1,
    max_size=4,
)
OPTIMIZERS = [Sgd(lr=0.1), Sgd(lr=0.1, momentum=0.9), Adam(lr=0.01)]


@settings(max_examples=60, deadline=None)
@given(SEEDS, MOVES, st.sampled_from(OPTIMIZERS))
def test_bsp_ends_bitwise_as_without_a_move_and_moves_the_least_bytes(
    seed: int, moves: list[tuple[float, set[int]]], optimizer: Optimizer
) -> None:
    undisturbed = MovingCluster(Bsp(), optimizer, [], seed=seed)
    expected = undisturbed.run()
    moving = MovingCluster(Bsp(), optimizer, moves, seed=seed)
    assert torch.equal(moving.run(), expected)
    assert moving.finished == undisturbed.finished == 3 * 8
    assert moving.elements_moved == moving.least_moved


class Counting(MovingCluster):
    """Each gradient has a parameter of its own, so the parameters say which are in them."""

    def begin(self) -> torch.Tensor:
        self.lead = 0
        return torch.zeros(self.workers * self.iterations)

    def gradient(self, worker: int, iteration: int, flat: torch.Tensor) -> torch.Tensor:
        found = torch.zeros(self.workers, self.iterations)
        found[worker, iteration] = -self.workers  # of the mean, with a rate of 1
        return found.reshape(-1)

    def computes(self, worker: int, iteration: int, flat: torch.Tensor) -> None:
        there = flat.reshape(self.workers, self.iterations)
        assert set(there.unique().tolist()) <= {0.0, 1.0}
        assert bool((there[worker, :iteration] == 1).all())  # what it has pushed itself
        whole_until = int(there.cumprod(1).sum(1).min())
        self.lead = max(self.lead, iteration - whole_until)

    def compute_s(self, worker: int) -> float:
        return self.pace.uniform(0.01, 0.1) * (1 + 3 * (worker == 0))


@pytest.mark.parametrize(
    ("policy", "most"),
    [
        (Bsp(), 0),
        (Ssp(staleness=2), 2),
        (Pssp(staleness=1, block_probability=1.0), 1),
        (Asp(), 8),
        (Dsps(staleness=1, extra=2), 3),
    ],
    ids=["bsp", "ssp", "pssp", "asp", "dsps"],
)
@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, moves=MOVES)
def test_no_gradient_is_lost_or_counts_twice_and_bounds_hold(
    policy: Policy, most: int, seed: int, moves: list[tuple[float, set[int]]]
) -> None:
    moving = Counting(policy, Sgd(lr=1.0), moves, seed=seed)
    assert torch.equal(moving.run(), torch.ones(moving.workers * moving.iterations))
    assert moving.finished == moving.workers * moving.iterations
    assert moving.lead <= most
    assert moving.elements_moved == moving.least_moved


def alone(parts: dict[int, tuple[Range, ...]], server: int = 0) -> Moves:
    """The part of a server that joins, and what it would do is not looked at."""

    def never(*_: Any) -> Any:
        raise AssertionError("not expected")

    return Moves(server, Division(0, parts), None, never, never, never)


def test_a_server_that_joins_keeps_what_arrives_before_its_pieces() -> None:
    moves = alone({1: (Range(0, 4),)})
    moves.take(Divided(Division(1, {0: (Range(0, 2),), 1: (Range(2, 4),)})))
    push = Push(0, 0, 0, torch.ones(2))
    assert moves.take(push)
    assert moves.next() is None
    assert moves.is_moving


def test_a_piece_may_come_before_the_division_is_announced() -> None:
    begun: list[Any] = []
    parts = {1: (Range(0, 4),)}
    moves = Moves(0, Division(0, parts), None, lambda *_: None, lambda *_: None, begun.append)  # type: ignore[arg-type,return-value]
    state = Shard(1, parameter_block(torch.ones(4), Sgd(lr=1.0)), 2, Bsp(), Silent()).state()
    assert moves.take(Moved(1, (Range(0, 4),), state))
    assert not begun
    after = Division(1, {0: (Range(0, 4),)})
    moves.take(Divided(after))
    assert begun == [after]


def test_messages_about_another_division_are_refused() -> None:
    moves = alone({1: (Range(0, 4),)})
    after = Division(1, {0: (Range(0, 2),), 1: (Range(2, 4),)})
    with pytest.raises(ProtocolError, match="goes over to division 1, which server 0"):
        moves.take(GoOver(0, 1))
    with pytest.raises(ProtocolError, match="cannot go on to 2"):
        moves.take(Divided(Division(2, after.parts)))
    moves.take(Divided(after))
    with pytest.raises(ProtocolError, match="a piece of division 2"):
        moves.take(Moved(2, (Range(0, 2),), None))
    with pytest.raises(ProtocolError, match="a piece of division 1"):
        moves.take(Moved(1, (Range(1, 3),), None))
    assert moves.take(Leave(0))
