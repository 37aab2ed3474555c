"""Pieces of the states of shards, and the states that pieces make.

All that a shard remembers belongs either to an element of its parameters (parameters, tensors of
the optimizer, unfinished sums) or to the whole shard (clock, watermarks, counts). Steps and sums
are elementwise, so a piece of a state is exactly what a shard of these elements alone would have.
Pieces of several shards are joined only if these have taken the same pushes: then they agree in all
that belongs to the whole shard.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import torch

from outpace.blocks.block import Phantom, Pieces, Value, whole
from outpace.blocks.division import Range, Ranges, places_within, size_of
from outpace.blocks.recutting import views
from outpace.errors import ProtocolError
from outpace.optim import OptimizerState
from outpace.sync.checkpoint.state import PendingIteration, ShardState

Piece: TypeAlias = tuple[Sequence[Range], ShardState]  # the ranges that the block consists of


def piece_of(state: ShardState, part: Ranges, wanted: Sequence[Range]) -> ShardState:
    """Return what belongs to some ranges of a shard's part; tensors may be views of the state's.

    Raises ValueError if a range is not in the part.
    """
    places, elements = places_within(part, wanted), size_of(part)

    def cut(value: Value) -> Value:
        return _cut(value, places, elements)

    return replace(
        state,
        parameters=cut(state.parameters),
        optimizer=_optimizer(state.optimizer, lambda tensor: whole(cut(tensor))),
        pending=tuple(
            replace(each, parts=tuple((node, cut(value)) for node, value in each.parts))
            for each in state.pending
        ),
    )


def joined(shard: int, pieces: Sequence[Piece], *, is_scaled: bool = False) -> ShardState:
    """Return the state of this shard, whose part consists of the ranges of all pieces.

    is_scaled: the number of workers has changed. Each shard counts pushes as if there had always
    been as many as now, from the moment at which it has heard of it, so these counts may differ.
    Raises ProtocolError if the pieces are of shards that have not taken the same pushes.
    """
    states = [state for _, state in pieces]
    first = states[0]
    for state in states[1:]:
        _require_same(first, state, is_scaled=is_scaled)
    # Each tensor is cut at the ranges of its piece; these are then put in ascending order.
    order = sorted((piece, number) for number, (ranges, _) in enumerate(pieces) for piece in ranges)
    places = [
        dict(zip(ranges, places_within(tuple(ranges), ranges), strict=True)) for ranges, _ in pieces
    ]

    def join(values: Sequence[Value]) -> Value:
        if isinstance(values[0], Phantom):
            return Phantom(sum(value.nbytes for value in values))
        found: list[torch.Tensor] = []
        for piece, number in order:
            found += views(values[number], places[number][piece])
        return torch.cat(found)

    return replace(
        first,
        shard=shard,
        version=max(state.version for state in states),
        pushes=max(state.pushes for state in states),
        furthest=max(state.furthest for state in states),
        parameters=join([state.parameters for state in states]),
        optimizer={
            number: {
                name: join([state.optimizer[number][name] for state in states])
                if _is_per_element(value)
                else value
                for name, value in values.items()
            }
            for number, values in first.optimizer.items()
        },
        pending=tuple(
            replace(
                each,
                parts=tuple(
                    (node, join([state.pending[at].parts[place][1] for state in states]))
                    for place, (node, _) in enumerate(each.parts)
                ),
            )
            for at, each in enumerate(first.pending)
        ),
    )


def _cut(value: Value, places: Sequence[slice], elements: int) -> Value:
    if isinstance(value, Phantom):
        size = sum(place.stop - place.start for place in places)
        return Phantom(value.nbytes * size // elements)
    found = [view for place in places for view in views(value, place)]
    return found[0] if len(found) == 1 else Pieces(found)


def _optimizer(state: OptimizerState, cut: Callable[[torch.Tensor], Any]) -> OptimizerState:
    """Return the state with its tensors cut. Numbers, as Adam's count of steps, stay."""
    return {
        number: {
            name: cut(value) if _is_per_element(value) else value for name, value in values.items()
        }
        for number, values in state.items()
    }


def _is_per_element(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.ndim > 0


def _require_same(one: ShardState, other: ShardState, *, is_scaled: bool) -> None:
    """Raise ProtocolError unless two shards have taken the same pushes."""
    for name in ("clock", "watermarks", "gone", "mixed", *(() if is_scaled else ("pushes",))):
        mine, theirs = getattr(one, name), getattr(other, name)
        if mine != theirs:
            raise ProtocolError(
                f"shards {one.shard} and {other.shard} cannot be joined: their {name} are {mine} "
                f"and {theirs}"
            )
    if [_sum_of(each) for each in one.pending] != [_sum_of(each) for each in other.pending]:
        raise ProtocolError(
            f"shards {one.shard} and {other.shard} cannot be joined: they have added other "
            "gradients to the iterations that are not finished"
        )
    if _names(one.optimizer) != _names(other.optimizer):
        raise ProtocolError(
            f"shards {one.shard} and {other.shard} cannot be joined: their optimizers remember "
            "different things"
        )


def _sum_of(pending: PendingIteration) -> tuple[object, ...]:
    """Return all of an unfinished sum that does not belong to an element, or to one shard."""
    nodes = [node for node, _ in pending.parts]
    workers = sorted(worker for worker, _ in pending.pushes)
    return pending.iteration, pending.scale, pending.workers, pending.count, nodes, workers


def _names(state: OptimizerState) -> list[tuple[int, list[tuple[str, bool]]]]:
    return [
        (number, [(name, _is_per_element(value)) for name, value in values.items()])
        for number, values in state.items()
    ]
