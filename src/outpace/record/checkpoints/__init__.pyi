"""The names for checkpoints; `__init__.py` imports each on first use."""

from outpace.record.checkpoints.committed import Damaged as Damaged
from outpace.record.checkpoints.folder import Checkpoints as Checkpoints
from outpace.record.checkpoints.index import Index as Index
from outpace.record.checkpoints.lock import RunLock as RunLock
from outpace.record.checkpoints.lock import holder as holder
from outpace.record.checkpoints.reading import Checkpoint as Checkpoint
from outpace.record.checkpoints.shards import ShardRecord as ShardRecord
from outpace.record.checkpoints.shards import write_shard as write_shard
from outpace.record.checkpoints.tensors import Part as Part
from outpace.record.checkpoints.tensors import write_tensors as write_tensors

__all__: list[str]
