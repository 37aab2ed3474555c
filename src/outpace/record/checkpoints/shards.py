"""The state of one shard as a file of tensors and a record for the index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import torch

from outpace.blocks.block import Phantom, Pieces, StepSettings, Value, whole
from outpace.blocks.packing import DTYPES, dtype_name
from outpace.blocks.sums import TreeSum
from outpace.errors import ConfigError
from outpace.optim import OptimizerState
from outpace.record.checkpoints.tensors import (
    Part,
    read_tensor,
    read_tensors,
    size_of,
    write_tensors,
)
from outpace.sync.checkpoint.state import PendingIteration, ShardState
from outpace.sync.messages import server_name
from outpace.sync.policy import Scale

SUFFIX: Final = ".safetensors"
_PARAMETERS: Final = "parameters"
# The fields that a state and its record have in common.
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


class StateEntry(msgspec.Struct, frozen=True):
    """An entry of an optimizer's state: a tensor in the file, or a value."""

    parameter: int
    name: str
    is_tensor: bool = False
    value: bool | int | float | str | None = None

    @property
    def key(self) -> str:
        """The name of the tensor in the file."""
        return f"optimizer/{self.parameter}/{self.name}"


class PartialSum(msgspec.Struct, frozen=True):
    """A part of a pending sum.

    lengths: of its pieces; empty if it is one tensor. dtypes: of the pieces; empty if they have
    the same.
    """

    node: int
    lengths: list[int] = []
    dtypes: list[str] = []


class PendingRecord(msgspec.Struct, frozen=True):
    """A `PendingIteration` without tensors."""

    iteration: int
    scale: Scale
    workers: int
    count: int
    parts: tuple[PartialSum, ...]
    pushes: tuple[tuple[int, int], ...]
    settings: tuple[tuple[int, StepSettings], ...] = ()

    def key(self, node: int) -> str:
        """The name of a part of the sum in the file."""
        return f"pending/{self.iteration}/{node}"


class ShardRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A `ShardState` without tensors.

    Attributes:
        file: name of the file that has the tensors.
        phantom_bytes: size of parameters that have no values (task `timing`); else None.
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
    optimizer: list[StateEntry] = []
    pending: list[PendingRecord] = []


def write_shard(folder: Path, state: ShardState, name: str = "") -> tuple[ShardRecord, Part]:
    """Write the tensors of a shard; return its record for the index, and the file.

    Args:
        folder: as `Checkpoints.begin` returned it.
        name: of the file, without its suffix; empty: that of the server.

    Raises:
        OSError: if the file cannot be written.
        ConfigError: if the optimizer keeps something that is no number, text or tensor.
    """
    record, tensors = shard_file(state, name)
    return record, write_tensors(folder / record.file, tensors)


def shard_file(state: ShardState, name: str = "") -> tuple[ShardRecord, dict[str, torch.Tensor]]:
    """Return the record of a shard for the index, and the tensors in its file.

    As `write_shard`, which writes them. Raises ConfigError.
    """
    is_phantom = isinstance(state.parameters, Phantom)
    record = ShardRecord(
        file=f"{name or server_name(state.shard)}{SUFFIX}",
        phantom_bytes=state.parameters.nbytes if is_phantom else None,
        optimizer=_entries(state.optimizer),
        pending=[
            PendingRecord(
                parts=tuple(PartialSum(n, _lengths(part), _dtypes(part)) for n, part in each.parts),
                **_common(each, _OF_PENDING),
            )
            for each in state.pending
        ],
        **_common(state, _OF_SHARD),
    )
    return record, _tensors(state, record)


def read_shard(folder: Path, record: ShardRecord) -> ShardState:
    """Return the state that `write_shard` wrote. Raises OSError."""
    try:
        return shard_of(record, read_tensors(folder / record.file))
    except (AssertionError, LookupError, RuntimeError) as error:
        raise OSError(f"{folder / record.file} is not the file of its record: {error}") from error


def shard_of(record: ShardRecord, found: Mapping[str, torch.Tensor]) -> ShardState:
    """Return the state of which `shard_file` returned the record and the tensors.

    Raises KeyError if a tensor is missing.
    """
    phantom = None if record.phantom_bytes is None else Phantom(record.phantom_bytes)

    def sum_of(pending: PendingRecord, part: PartialSum) -> Value:
        tensor = found.get(pending.key(part.node))
        if tensor is None:
            assert phantom is not None
            return phantom
        if not part.lengths:
            return tensor
        pieces = torch.split(tensor, part.lengths)
        if part.dtypes:
            pieces = tuple(p.to(DTYPES[d]) for p, d in zip(pieces, part.dtypes, strict=True))
        return Pieces(pieces)

    optimizer: dict[int, dict[str, Any]] = {}
    for entry in record.optimizer:
        value = found[entry.key] if entry.is_tensor else entry.value
        optimizer.setdefault(entry.parameter, {})[entry.name] = value
    pending = tuple(
        PendingIteration(
            parts=tuple((part.node, sum_of(each, part)) for part in each.parts),
            **_common(each, _OF_PENDING),
        )
        for each in record.pending
    )
    parameters = found[_PARAMETERS] if phantom is None else phantom
    return ShardState(
        parameters=parameters, optimizer=optimizer, pending=pending, **_common(record, _OF_SHARD)
    )


def read_parameters(folder: Path, record: ShardRecord) -> Value:
    """Return the parameters of a shard. Raises OSError."""
    if record.phantom_bytes is not None:
        return Phantom(record.phantom_bytes)
    return read_tensor(folder / record.file, _PARAMETERS)


def parameters_in(folder: Path, record: ShardRecord) -> int | None:
    """Return how many parameters the file of a shard has; None if they have no values.

    Raises OSError.
    """
    is_phantom = record.phantom_bytes is not None
    return None if is_phantom else size_of(folder / record.file, _PARAMETERS)


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
    """Return the fields of these names."""
    return {name: getattr(one, name) for name in names}


def _tensors(state: ShardState, record: ShardRecord) -> dict[str, torch.Tensor]:
    """Return the tensors of a state by their names in the file."""
    found = {
        entry.key: state.optimizer[entry.parameter][entry.name]
        for entry in record.optimizer
        if entry.is_tensor
    }
    blocks: Mapping[str, Value] = {
        _PARAMETERS: state.parameters,
        **{
            kept.key(node): value
            for kept, pending in zip(record.pending, state.pending, strict=True)
            for node, value in pending.parts
        },
    }
    for name, block in blocks.items():
        tensor = whole(block)
        if isinstance(tensor, torch.Tensor):
            found[name] = tensor
    return found


def _entries(state: OptimizerState) -> list[StateEntry]:
    entries = []
    for parameter, values in state.items():
        for name, value in values.items():
            if isinstance(value, torch.Tensor):
                entries.append(StateEntry(parameter, name, is_tensor=True))
            elif value is None or isinstance(value, bool | int | float | str):
                entries.append(StateEntry(parameter, name, value=value))
            else:
                raise ConfigError(
                    f"checkpoint: the optimizer's state {name!r} is a {type(value).__name__}, and "
                    "a checkpoint can keep only numbers, texts and tensors: leave checkpoint out, "
                    "or use an optimizer that keeps only these"
                )
    return entries


def _lengths(value: Value) -> list[int]:
    return [part.numel() for part in value.parts] if isinstance(value, Pieces) else []


def _dtypes(value: Value) -> list[str]:
    """Return the dtypes of parts that have several, which a file keeps in the widest of them."""
    found = [dtype_name(part.dtype) for part in value.parts] if isinstance(value, Pieces) else []
    return found if len(set(found)) > 1 else []
