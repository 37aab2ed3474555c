"""The state that a worker without servers hands to one that joins: as bytes, and back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec
import numpy as np
import torch

from outpace.errors import RunError
from outpace.record.checkpoints import ShardRecord
from outpace.record.checkpoints.shards import read_shard, shard_file
from outpace.record.checkpoints.tensors import to_bytes
from outpace.sync.checkpoint.state import ShardState

_HEAD_BYTES: Final = 8  # the length of the record
_NAME: Final = "common"


class HandedOver(msgspec.Struct):
    """The state of a worker that joins the others: the common model, and what belongs to it.

    Attributes:
        updates: versions of the model.
        gradients: that are in it, since the processes of the run began.
        progress: of each worker, as in `Reductions.progress`.
        shared: of the common model, whose file follows.
    """

    updates: int
    gradients: int
    progress: list[tuple[int | None, int]]
    shared: ShardRecord


def encoded(record: Callable[[ShardRecord], HandedOver], shared: ShardState) -> torch.Tensor:
    """Return a state as bytes; shape (bytes,), uint8. Raises ConfigError as `write_shard`."""
    of_model, tensors = shard_file(shared, name=_NAME)
    head = msgspec.msgpack.encode(record(of_model))
    data = bytearray(len(head).to_bytes(_HEAD_BYTES, "little") + head)
    return torch.cat([torch.frombuffer(data, dtype=torch.uint8), to_bytes(tensors)])


def decoded(data: torch.Tensor, name: str) -> tuple[HandedOver, ShardState]:
    """Return the state in these bytes. Raises RunError, which names this worker."""
    content: np.ndarray[Any, Any] = data.numpy()
    size = int.from_bytes(content[:_HEAD_BYTES].tobytes(), "little")
    head, file = content[_HEAD_BYTES:][:size], content[_HEAD_BYTES:][size:]
    try:
        record = msgspec.msgpack.decode(head.tobytes(), type=HandedOver)
        shared = msgspec.structs.replace(record.shared, file=_NAME)  # whatever path it names
        with TemporaryDirectory(prefix="outpace-") as folder:
            (Path(folder) / _NAME).write_bytes(file.data)
            return record, read_shard(Path(folder), shared)
    except (OSError, msgspec.DecodeError) as error:
        raise RunError(f"{name} cannot read the state it was given: {error}") from error
