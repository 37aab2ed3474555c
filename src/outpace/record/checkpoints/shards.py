"""The state of one shard: its progress in the index, and everything else in a file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import torch
from safetensors import SafetensorError, safe_open

from outpace.blocks.block import Phantom, Pieces, StepSettings, Value, whole
from outpace.blocks.sums import TreeSum
from outpace.record.checkpoints.tensors import Part, read_tensor, read_tensors, write_tensors
from outpace.record.checkpoints.trees import packed_tree, tree_of
from outpace.support.regular_files import regular
from outpace.sync.checkpoint.state import PendingIteration, ShardState
from outpace.sync.messages import server_name
from outpace.sync.policy import Scale

SUFFIX: Final = ".safetensors"
_PARAMETERS: Final = "parameters"
# The fields that are both in a state and in its record.
_OF_SHARD: Final = (
    "shard",
    "clock",
    "version",
    "watermarks",
    "gone",
    "pushes",
    "furthest",
    "mixed",
)
_OF_PENDING: Final = ("iteration", "scale", "workers", "count", "pushes", "settings")


class PendingRecord(msgspec.Struct, frozen=True):
    """A `PendingIteration` without sums. parts: the nodes of the tree of sums that have a sum."""

    iteration: int
    scale: Scale
    workers: int
    count: int
    parts: tuple[int, ...]
    pushes: tuple[tuple[int, int], ...]
    settings: tuple[tuple[int, StepSettings], ...] = ()


class ShardRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A `ShardState` without tensors.

    Attributes:
        file: name of the file with the tensors.
        phantom_bytes: size of parameters without values (task `timing`); else None.
    """

    shard: int
    file: str
    clock: int
    version: int
    watermarks: tuple[int, ...]
    gone: tuple[int, ...]
    pushes: int
    furthest: float
    mixed: int
    phantom_bytes: int | None = None
    pending: list[PendingRecord] = []


def write_shard(folder: Path, state: ShardState, name: str = "") -> tuple[ShardRecord, Part]:
    """Write the tensors of a shard; return its record for the index, and the file.

    Args:
        folder: the result of `Checkpoints.begin`.
        name: name of the file without its suffix; empty: the name of the server.

    Raises:
        OSError: if the file cannot be written.
        Unfit: if the optimizer's state has a value that a checkpoint cannot store.
    """
    record, tensors = shard_file(state, name)
    return record, write_tensors(folder / record.file, tensors)


def shard_file(state: ShardState, name: str = "") -> tuple[ShardRecord, dict[str, torch.Tensor]]:
    """Return the record of a shard for the index, and the tensors in its file.

    `write_shard` writes these. Raises Unfit.
    """
    parameters = whole(state.parameters)
    is_phantom = isinstance(parameters, Phantom)
    record = ShardRecord(
        file=f"{name or server_name(state.shard)}{SUFFIX}",
        phantom_bytes=state.parameters.nbytes if is_phantom else None,
        pending=[
            PendingRecord(parts=tuple(n for n, _ in each.parts), **_common(each, _OF_PENDING))
            for each in state.pending
        ],
        **_common(state, _OF_SHARD),
    )
    sums = [[_stored(value) for _, value in each.parts] for each in state.pending]
    tree = {"optimizer": state.optimizer, "sums": sums}
    tensors = packed_tree(tree, "checkpoint: the optimizer's state", copies=False)
    if isinstance(parameters, torch.Tensor):
        tensors[_PARAMETERS] = parameters
    return record, tensors


def _stored(value: Value) -> Any:
    """Return a sum as a checkpoint stores it: a tensor, several for pieces, or None."""
    if isinstance(value, Pieces):
        return list(value.parts)
    return None if isinstance(value, Phantom) else whole(value)


def read_shard(folder: Path, record: ShardRecord) -> ShardState:
    """Return the state that `write_shard` wrote. Raises OSError."""
    try:
        return shard_of(record, read_tensors(folder / record.file))
    except (LookupError, TypeError, ValueError) as error:
        raise OSError(f"{folder / record.file} is not the file of its record: {error}") from error


def shard_of(record: ShardRecord, found: Mapping[str, torch.Tensor]) -> ShardState:
    """Return the state from the record and the tensors that `shard_file` returned.

    Raises KeyError if a tensor is missing.
    """
    tree, phantom = tree_of(found), Phantom(record.phantom_bytes or 0)

    def sum_of(stored: Any) -> Value:
        if stored is None:
            return phantom
        return Pieces(stored) if isinstance(stored, list) else stored

    pending = tuple(
        PendingIteration(
            parts=tuple(zip(each.parts, map(sum_of, sums), strict=True)),
            **_common(each, _OF_PENDING),
        )
        for each, sums in zip(record.pending, tree["sums"], strict=True)
    )
    return ShardState(
        parameters=found[_PARAMETERS] if record.phantom_bytes is None else phantom,
        optimizer=tree["optimizer"],
        pending=pending,
        **_common(record, _OF_SHARD),
    )


def read_parameters(folder: Path, record: ShardRecord) -> Value:
    """Return the parameters of a shard. Raises OSError."""
    if record.phantom_bytes is not None:
        return Phantom(record.phantom_bytes)
    return read_tensor(folder / record.file, _PARAMETERS)


def parameters_in(folder: Path, record: ShardRecord) -> int | None:
    """Return the number of parameters in the file of a shard; None if they have no values.

    Raises OSError.
    """
    if record.phantom_bytes is not None:
        return None
    try:
        with safe_open(str(regular(folder / record.file)), "pt") as file:
            shape: list[int] = file.get_slice(_PARAMETERS).get_shape()
            return math.prod(shape)
    except SafetensorError as error:
        raise OSError(f"{folder / record.file}: {error}") from error


def mean_parameters(folder: Path, files: Sequence[str]) -> Value:
    """Return the mean of the parameters in these files of `write_shard`. Raises OSError."""
    total = TreeSum(len(files))
    for number, file in enumerate(files):
        total.add(number, read_tensor(folder / file, _PARAMETERS))
    return total.mean()


def without_tensors(record: ShardRecord) -> ShardState:
    """Return the state without parameters, optimizer and pending sums."""
    return ShardState(parameters=Phantom(0), **_common(record, _OF_SHARD))


def _common(one: object, names: Sequence[str]) -> dict[str, Any]:
    """Return the fields with these names."""
    return {name: getattr(one, name) for name in names}
