"""Pieces of the states of shards, and the states that pieces make.

All that a shard remembers belongs either to an element of its parameters (parameters, tensors of
the optimizer, unfinished sums) or to the whole shard (clock, watermarks, counts). Steps and sums
are elementwise, so a piece of a state is exactly what a shard of these elements alone would have.
Pieces of several shards are joined only if these have taken the same pushes: then they agree in all
that belongs to the whole shard.

An optimizer of a configuration has one state, of the whole part. That of a script has one for each
tensor of the model, of the elements of this tensor that are in the part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import torch

from outpace.blocks.block import Phantom, Pieces, Value, whole
from outpace.blocks.division import Range, Ranges, places_within, shared, size_of
from outpace.blocks.recutting import views
from outpace.errors import ProtocolError
from outpace.optim import OptimizerState
from outpace.optim.pieces import extent_of, is_per_element, kinds_of
from outpace.sync.checkpoint.state import PendingIteration, ShardState

Piece: TypeAlias = tuple[Sequence[Range], ShardState]  # the ranges that the block consists of


def piece_of(
    state: ShardState, part: Ranges, wanted: Sequence[Range], layers: Sequence[int] = ()
) -> ShardState:
    """Return what belongs to some ranges of a shard's part; tensors may be views of the state's.

    layers: elements of each tensor of the model, if the optimizer is that of a script; else empty.
    Raises ValueError if a range is not in the part.
    """
    places, elements = places_within(part, wanted), size_of(part)

    def cut(value: Value) -> Value:
        return _cut(value, places, elements)

    return replace(
        state,
        parameters=cut(state.parameters),
        optimizer=optimizer_of(state.optimizer, part, wanted, layers),
        pending=tuple(
            replace(each, parts=tuple((node, cut(value)) for node, value in each.parts))
            for each in state.pending
        ),
    )


def joined(
    shard: int, pieces: Sequence[Piece], *, is_scaled: bool = False, layers: Sequence[int] = ()
) -> ShardState:
    """Return the state of this shard, whose part consists of the ranges of all pieces.

    is_scaled: the number of workers has changed. Each shard counts pushes as if there had always
    been as many as now, from the moment at which it has heard of it, so these counts may differ.
    layers: as for `piece_of`.
    Raises ProtocolError if the pieces are of shards that have not taken the same pushes.
    """
    states = [state for _, state in pieces]
    first = states[0]
    for state in states[1:]:
        _require_same(first, state, is_scaled=is_scaled)
    everything = [ranges for ranges, _ in pieces]

    def join(values: Sequence[Value]) -> Value:
        return _join(everything, values)

    return replace(
        first,
        shard=shard,
        version=max(state.version for state in states),
        pushes=max(state.pushes for state in states),
        furthest=max(state.furthest for state in states),
        parameters=join([state.parameters for state in states]),
        optimizer=_joined_optimizer(pieces, layers),
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


def _join(ranges: Sequence[Sequence[Range]], values: Sequence[Value]) -> Value:
    """Return one value, in ascending order, of values that are each of some ranges."""
    if isinstance(values[0], Phantom):
        return Phantom(sum(value.nbytes for value in values))
    order = sorted((piece, number) for number, mine in enumerate(ranges) for piece in mine)
    places = [dict(zip(mine, places_within(tuple(mine), mine), strict=True)) for mine in ranges]
    found: list[torch.Tensor] = []
    for piece, number in order:
        found += views(values[number], places[number][piece])
    return torch.cat(found)


def _cut(value: Value, places: Sequence[slice], elements: int) -> Value:
    if isinstance(value, Phantom):
        size = sum(place.stop - place.start for place in places)
        return Phantom(value.nbytes * size // elements)
    found = [view for place in places for view in views(value, place)]
    return found[0] if len(found) == 1 else Pieces(found)


def optimizer_of(
    state: OptimizerState, part: Ranges, wanted: Sequence[Range], layers: Sequence[int]
) -> dict[int, dict[str, Any]]:
    """Return an optimizer's state with its tensors cut; see `piece_of`.

    Numbers, as Adam's count of steps, stay. Tensors may be views.
    """
    found: dict[int, dict[str, Any]] = {}
    for number, values in state.items():
        of_tensor = (extent_of(number, part[-1].high, layers),)
        mine, due = shared(part, of_tensor), shared(tuple(wanted), of_tensor)
        if not due:
            continue
        places = places_within(tuple(mine), due)

        def cut(value: Any, places: Sequence[slice] = places) -> Any:
            return whole(_cut(value, places, 1)) if is_per_element(value) else value

        found[number] = {name: cut(value) for name, value in values.items()}
    return found


def _joined_optimizer(pieces: Sequence[Piece], layers: Sequence[int]) -> OptimizerState:
    """Return the optimizer's state of all pieces. Raises ProtocolError if they do not fit."""
    end = max(each.high for ranges, _ in pieces for each in ranges)
    found: dict[int, dict[str, Any]] = {}
    for number in sorted({number for _, state in pieces for number in state.optimizer}):
        of_tensor = (extent_of(number, end, layers),)
        ranges, known = [], []
        for owned, state in pieces:
            if mine := shared(tuple(owned), of_tensor):
                ranges.append(mine)
                known.append(state.optimizer.get(number, {}))
        if any(kinds_of(values) != kinds_of(known[0]) for values in known):
            raise ProtocolError("shards cannot be joined: their optimizers remember other things")
        found[number] = {
            name: _join(ranges, [values[name] for values in known])
            if is_per_element(value)
            else value
            for name, value in known[0].items()
        }
    return found


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


def _sum_of(pending: PendingIteration) -> tuple[object, ...]:
    """Return all of an unfinished sum that does not belong to an element, or to one shard."""
    nodes = [node for node, _ in pending.parts]
    workers = sorted(worker for worker, _ in pending.pushes)
    return pending.iteration, pending.scale, pending.workers, pending.count, nodes, workers
