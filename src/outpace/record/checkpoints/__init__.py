"""Checkpoints on disk: `RUN/checkpoints/000012/`, one folder each, which is whole or absent.

    server-0.safetensors, ...  the parameters of each server and the tensors of its optimizer
    metrics.parquet            the metrics so far
    index.json                 everything else, with the size and CRC-32 of the other files

A checkpoint is written into `000012.part`, which is renamed when all its files are on the disk.
"""

from outpace.record.checkpoints.folder import Checkpoints
from outpace.record.checkpoints.index import Index, Taken
from outpace.record.checkpoints.lock import RunLock
from outpace.record.checkpoints.reading import Checkpoint
from outpace.record.checkpoints.shards import ScriptOptimizer, ShardRecord, write_shard
from outpace.record.checkpoints.tensors import Part, write_tensors

__all__ = [
    "Checkpoint",
    "Checkpoints",
    "Index",
    "Part",
    "RunLock",
    "ScriptOptimizer",
    "ShardRecord",
    "Taken",
    "write_shard",
    "write_tensors",
]
