"""Makes states of shards for another number of servers or workers than at the checkpoint.

With another number of servers, the parameters and the optimizer's tensors are cut into new slices.
With another number of workers, iterations no longer belong to the workers that computed them: all
workers begin with the iteration that the shards had reached. In both cases pending sums are
dropped, because they belong to a slice and to a number of workers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from outpace.blocks.block import Phantom, Value, whole
from outpace.optim import OptimizerState
from outpace.record.checkpoints.index import Index
from outpace.record.checkpoints.shards import ShardRecord, read_shard, without_tensors
from outpace.sync.checkpoint.state import ShardState, gaps


def state_of_slice(folder: Path, index: Index, shard: int, part: slice, workers: int) -> ShardState:
    """Return the state with which server `shard` begins. part: its slice. Raises OSError.

    This reads only the files of shards that have a piece of this slice.
    """
    if index.slices[shard : shard + 1] == [part]:
        state = read_shard(folder, index.shards[shard])  # only the number of workers differs
        parameters, optimizer = state.parameters, state.optimizer
    else:
        found = [(owned, read_shard(folder, each)) for owned, each in overlapping(index, part)]
        parameters, optimizer = _parameters(index, found, part), _optimizer(index, found, part)
    records, before = index.shards, index.workers
    clock = max(record.clock for record in records)
    if workers == before:
        watermarks = tuple(map(max, zip(*(record.watermarks for record in records), strict=True)))
        gone = set.intersection(*(set(record.gone) for record in records))
    else:
        watermarks, gone = (clock - 1,) * workers, set()
    return ShardState(
        shard=shard,
        clock=clock,
        version=max(record.version for record in records),
        watermarks=watermarks,
        gone=tuple(sorted(gone)),
        # N pushes are one iteration of training, for every N.
        pushes=round(max(record.pushes for record in records) / before * workers),
        furthest=max(record.furthest for record in records),
        mixed=max(record.mixed for record in records),
        parameters=parameters,
        optimizer=optimizer,
    )


def overlapping(index: Index, part: slice) -> list[tuple[slice, ShardRecord]]:
    """Return the slices of shards that overlap with `part`, ascending, each with its record."""
    pairs = zip(index.slices, index.shards, strict=True)
    return [(owned, record) for owned, record in pairs if _length(_overlap(owned, part)) > 0]


def lost(index: Index, is_divided: bool) -> int:
    """Return how many iterations of workers are lost by resuming from this checkpoint.

    These are the gaps between the shards and, if the states are divided again, the gradients in
    pending sums.
    """
    states = [without_tensors(record) for record in index.shards]
    pending = {
        (worker, each.iteration)
        for record in index.shards
        if is_divided
        for each in record.pending
        for worker, _ in each.pushes
    }
    lowest = [
        min(max(state.watermarks[worker], state.clock - 1) for state in states)
        for worker in range(index.workers)
    ]
    return gaps(states) + sum(iteration <= lowest[worker] for worker, iteration in pending)


def _parameters(index: Index, found: Sequence[tuple[slice, ShardState]], part: slice) -> Value:
    tensors = [
        tensor[_within(place, _overlap(place, part))]
        for place, state in found
        if isinstance(tensor := whole(state.parameters), torch.Tensor)
    ]
    if tensors:
        return torch.cat(tensors)
    size = sum(record.phantom_bytes or 0 for record in index.shards)
    return Phantom(size * _length(part) // index.bounds[-1])


def _optimizer(
    index: Index, found: Sequence[tuple[slice, ShardState]], part: slice
) -> OptimizerState:
    """Return the optimizer's state of a slice.

    If not all shards of a parameter have its state yet, the state is left out.
    """
    merged: dict[int, dict[str, Any]] = {}
    for number in sorted({number for _, state in found for number in state.optimizer}):
        extent = _extent(index, number)
        # states of the parameter's pieces, and where the new slice is in each piece
        states, places = [], []
        for place, state in found:
            piece = _overlap(extent, place)
            wanted = _overlap(piece, part)
            if _length(wanted) > 0:
                states.append(state.optimizer.get(number, {}))
                places.append(_within(piece, wanted))
        if states and all(_kinds(state) == _kinds(states[0]) for state in states):
            merged[number] = {
                name: _joined([state[name] for state in states], places) for name in states[0]
            }
    return merged


def _joined(values: Sequence[Any], places: Sequence[slice]) -> Any:
    """Join the values of the pieces; a value that is not per element comes from the first piece."""
    first = values[0]
    if not _is_per_element(first):
        return first
    return torch.cat([value[place] for value, place in zip(values, places, strict=True)])


def _extent(index: Index, number: int) -> slice:
    """Return the elements of the flat parameters that a parameter of the optimizer consists of.

    The optimizer of a configuration has one parameter: everything that its server owns. A script's
    optimizer has one parameter for each tensor of the model.
    """
    if not (index.of_script and index.layers):
        return slice(0, index.bounds[-1])
    start = sum(index.layers[:number])
    return slice(start, start + index.layers[number])


def _is_per_element(value: Any) -> bool:
    """True if a value of the state has one element for each element of the parameter."""
    return isinstance(value, torch.Tensor) and value.ndim > 0


def _kinds(state: Mapping[str, Any]) -> list[tuple[str, bool]]:
    """Return the names in one parameter's state, with True if the value is per element.

    Pieces of a state can be joined only if these results are the same.
    """
    return [(name, _is_per_element(value)) for name, value in state.items()]


def _overlap(one: slice, other: slice) -> slice:
    return slice(max(one.start, other.start), min(one.stop, other.stop))


def _within(outer: slice, inner: slice) -> slice:
    """Return a slice counted from the start of another."""
    return slice(inner.start - outer.start, inner.stop - outer.start)


def _length(part: slice) -> int:
    length: int = part.stop - part.start
    return length
