"""Checkpoints on disk: `RUN/checkpoints/000012/`, one folder each, which is whole or absent.

    server-0.safetensors, ...  the parameters of each server and the tensors of its optimizer
    metrics.parquet            the metrics so far
    index.json                 everything else, with the size and CRC-32 of the other files

A checkpoint is written into `000012.part`, which is renamed when all its files are on the disk.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from outpace.record.checkpoints.folder import Checkpoints
    from outpace.record.checkpoints.index import Index, Taken
    from outpace.record.checkpoints.lock import RunLock
    from outpace.record.checkpoints.reading import Checkpoint
    from outpace.record.checkpoints.shards import ShardRecord, write_shard
    from outpace.record.checkpoints.tensors import Part, write_tensors

_MODULES: Final = {
    "Checkpoint": "reading",
    "Checkpoints": "folder",
    "Index": "index",
    "Part": "tensors",
    "RunLock": "lock",
    "ShardRecord": "shards",
    "Taken": "index",
    "write_shard": "shards",
    "write_tensors": "tensors",
}


def __getattr__(name: str) -> Any:
    """Import on first use: `outpace status` reads `committed` and `lock`, which need no torch."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


__all__ = [
    "Checkpoint",
    "Checkpoints",
    "Index",
    "Part",
    "RunLock",
    "ShardRecord",
    "Taken",
    "write_shard",
    "write_tensors",
]
