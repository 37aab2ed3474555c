"""Pieces of the states of shards.

All that a shard remembers belongs either to an element of its parameters (parameters, tensors of
the optimizer, unfinished sums) or to the whole shard (clock, watermarks, counts). Steps and sums
are elementwise, so a piece of a state is exactly what a shard of these elements alone would have.

An optimizer of a configuration has one state, of the whole part. That of a script has one for each
tensor of the model, of the elements of this tensor that are in the part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from outpace.blocks.block import Phantom, Pieces, Value, whole
from outpace.blocks.division import Range, Ranges, places_within, shared, size_of
from outpace.blocks.recutting import views
from outpace.optim import OptimizerState
from outpace.optim.pieces import extent_of, is_per_element
from outpace.sync.checkpoint.state import ShardState

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
