"""Reads a checkpoint from the disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import torch

from outpace.blocks.block import Phantom, Value
from outpace.errors import ConfigError
from outpace.record.checkpoints.committed import INDEX, Damaged, read_index
from outpace.record.checkpoints.dividing import lost, state_of_slice
from outpace.record.checkpoints.index import Index
from outpace.record.checkpoints.shards import (
    ShardRecord,
    parameters_in,
    read_parameters,
    read_shard,
)
from outpace.record.checkpoints.tensors import checked
from outpace.record.folder import CHECKPOINTS, METRICS, read_table
from outpace.sync.checkpoint.state import ShardState
from outpace.sync.checkpoint.workers import joined


class Checkpoint:
    """A checkpoint with its index; the other files are read when they are needed.

    Args:
        path: folder of the checkpoint.

    Raises:
        Damaged: if the index is missing or differs from the written one.
        ConfigError: if a newer version of Outpace wrote it.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.index = path, read_index(path, Index)

    @property
    def name(self) -> str:
        """The checkpoint's folder below the folder of the run, such as checkpoints/000012."""
        return f"{CHECKPOINTS}/{self.path.name}"

    def check(self) -> None:
        """Read all files. Raises Damaged if one is missing or differs from the written file."""
        for part in self.index.parts:
            file = self.path / part.file
            try:
                found = checked(file)
            except OSError as error:
                raise Damaged(f"{file} is damaged: {error.strerror or error}") from error
            if found != part:
                raise Damaged(f"{file} is damaged: its size or its CRC-32 is wrong")
        for record, owned in zip(self.index.shards, self.index.slices, strict=True):
            try:
                count = parameters_in(self.path, record)
            except OSError as error:
                raise Damaged(f"{self.path / record.file} is damaged: {error}") from error
            # The parameters of a script without servers are followed by the model buffers.
            if (
                count is not None
                and count != owned.stop - owned.start
                and not (len(self.index.shards) == 1 and count > owned.stop)
            ):
                raise Damaged(
                    f"{self.path / record.file} is damaged, or of another model: it has {count:,} "
                    f"parameters, and {INDEX} says {owned.stop - owned.start:,}"
                )

    def metrics(self) -> pa.Table:
        """Return the metrics until the checkpoint. Raises OSError."""
        return read_table(self.path / METRICS)

    def blocks(self) -> list[Value]:
        """Return the parameters, cut into the slices of the index. Raises OSError."""
        found = [read_parameters(self.path, record) for record in self.index.shards]
        # The parameters of a script without servers are followed by the averaged model buffers.
        sizes = [part.stop - part.start for part in self.index.slices]
        return [
            value[:size] if isinstance(value, torch.Tensor) else value
            for value, size in zip(found, sizes, strict=True)
        ]

    def shard_state(self, shard: int, slices: Sequence[slice], workers: int) -> ShardState:
        """Return the state of one server of a run that is resumed from here.

        It is exactly the saved state if the slices and the number of workers are the same;
        otherwise see `dividing`.

        Args:
            slices: slices of the flat parameters, one for each server.

        Raises:
            ConfigError: if the number of parameters differs.
            OSError: if a file cannot be read.
        """
        index = self.index
        if slices[-1].stop != index.bounds[-1]:
            raise ConfigError(
                f"{self.path} has {index.bounds[-1]:,} parameters, and the task has "
                f"{slices[-1].stop:,}: resume with the task of that run"
            )
        if self._is_divided(slices, workers):
            return state_of_slice(self.path, index, shard, slices[shard], workers)
        return read_shard(self.path, index.shards[shard])

    def own_state(self, worker: int, workers: int) -> ShardState | None:
        """Return what a worker without servers has besides the common model; None if nothing.

        A worker that is not in the checkpoint takes over the model and the optimizer's state of
        another worker, without its gradients. If the number of workers has changed to `workers`,
        worker n modulo `workers` takes over the gradients that worker n had accumulated. Gradients
        that are only in the model of one worker are left out. Raises OSError.
        """
        records = self._own_records(worker, workers)
        if not records:
            return None
        state, *others = [read_shard(self.path, record) for record in records]
        is_same = state.shard == worker and workers == self.index.workers
        if is_same or not state.pending:
            return state
        mine = [each for each in (state, *others) if each.shard % workers == worker]
        accumulated = joined([part for each in mine for part in each.pending if part.parts])
        return replace(state, pending=accumulated, parameters=Phantom(0))

    def _own_records(self, worker: int, workers: int) -> list[ShardRecord]:
        """Return the record of a worker, then the records whose gradients it takes over."""
        own = self.index.own
        if not own:
            return []
        mine = next((record for record in own if record.shard == worker), None)
        mine = mine or own[worker % len(own)]
        is_gone = workers < self.index.workers
        others = [record for record in own if is_gone and record.shard % workers == worker]
        return [mine, *(record for record in others if record.pending and record is not mine)]

    def updates_lost(self, slices: Sequence[slice], workers: int) -> int:
        """Return how many iterations of workers are partly lost by resuming from here."""
        pending = [each for own in self.index.own for each in own.pending]
        in_one_model = sum(each.count for each in pending if not each.parts)
        left_out = 0 if workers == self.index.workers else in_one_model
        return left_out + lost(self.index, self._is_divided(slices, workers))

    def _is_divided(self, slices: Sequence[slice], workers: int) -> bool:
        """True if the states must be changed for these servers and workers."""
        return workers != self.index.workers or list(slices) != self.index.slices
