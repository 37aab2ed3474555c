"""The parts of an engine that save checkpoints and resume from one, in every runtime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from outpace.blocks.block import Phantom
from outpace.config.experiment import Experiment
from outpace.errors import ConfigError
from outpace.record.checkpoints import Checkpoint
from outpace.record.checkpoints.shards import without_tensors
from outpace.record.event_log import Recovery
from outpace.record.totals import Totals
from outpace.support.units import Time
from outpace.support.words import plural
from outpace.sync.checkpoint.state import ShardState, aligned, first_iteration, scheduler_state
from outpace.sync.messages import worker_name


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """The checkpoint from which a run is resumed.

    Attributes:
        checkpoint: a checkpoint that is whole and undamaged.
        experiment: the experiment, whose numbers of servers and workers may differ from the
            checkpoint's.
        slices: slices of the flat parameters, one for each server.
        first: the first iteration of each worker.
        recovery: the counts of the run, including the losses of a resume from here.
    """

    checkpoint: Checkpoint
    experiment: Experiment
    slices: list[slice]
    first: list[int]
    recovery: Recovery

    @classmethod
    def of(cls, checkpoint: Checkpoint, experiment: Experiment) -> ResumePoint:
        """Return the point at which an experiment is resumed.

        Raises ConfigError if the parameters cannot be divided among the servers.
        """
        index, workers = checkpoint.index, experiment.workers
        slices = experiment.slices(index.layers)
        states, before = _progress(checkpoint, experiment), index.recovery
        if workers == index.workers:
            first = [first_iteration(worker, states) for worker in range(workers)]
        else:
            first = [max(state.clock for state in states)] * workers
        return cls(
            checkpoint,
            experiment,
            slices,
            first,
            Recovery(
                restarts=before.restarts,
                updates_lost=before.updates_lost + checkpoint.updates_lost(slices, workers),
                resumed_from=checkpoint.name,
                scalings=[*before.scalings],
            ),
        )

    @property
    def number(self) -> int:
        """The number of the checkpoint."""
        return self.checkpoint.index.number

    @property
    def begins_anew(self) -> bool:
        """True if some scripts begin again from their start."""
        return bool(self.checkpoint.index.anew)

    @property
    def path(self) -> Path:
        """The folder of the checkpoint."""
        return self.checkpoint.path

    @property
    def now(self) -> Time:
        """The time of the run at the checkpoint."""
        return self.checkpoint.index.now

    @property
    def updates(self) -> int:
        """The number of updates until the checkpoint, as `evaluate.every_updates` counts them."""
        return self.checkpoint.index.updates

    @property
    def totals(self) -> Totals:
        """Return a copy of the sums until the checkpoint."""
        return self.checkpoint.index.totals.copy()

    @property
    def not_computed(self) -> dict[int, int]:
        """By worker, the number of iterations before its first one that it has not computed.

        They include the iterations that were done before the worker existed.
        """
        done = self.checkpoint.index.totals.iterations
        return {n: max(0, first - done.get(n, 0)) for n, first in enumerate(self.first)}

    def metrics(self) -> pa.Table:
        """Return the metrics until the checkpoint, for `Metrics.take_up`. Raises OSError."""
        return self.checkpoint.metrics()

    def require_same_model(self, layers: Sequence[int]) -> None:
        """Raise ConfigError if the workers train another model than at the checkpoint.

        layers: number of elements of each tensor of the parameters.
        """
        before = self.checkpoint.index.layers
        if tuple(layers) != before:
            raise ConfigError(
                f"--resume: the model has {plural(sum(layers), 'parameter')} in "
                f"{plural(len(layers), 'tensor')}, and {self.checkpoint.name} has "
                f"{sum(before):,} in {len(before)}: resume with the model that the run was made "
                "with"
            )

    def state(self, server: int) -> ShardState:
        """Return the state with which a server begins; reads only the files that it needs.

        Raises:
            ConfigError: if the task has another number of parameters now, or a file cannot be read.
        """
        try:
            return state_of(self.checkpoint, self.experiment, server)
        except OSError as error:
            raise ConfigError(f"{self.path}: {error}") from error

    def own_states(self) -> list[ShardState | None]:
        """Return the state that each worker without servers has besides the common model.

        See `own_state_of`. Raises ConfigError if a file cannot be read.
        """
        workers = range(len(self.first))
        try:
            states = [own_state_of(self.checkpoint, self.experiment, n) for n in workers]
        except OSError as error:
            raise ConfigError(f"{self.path}: {error}") from error
        return [each and replace(each, shard=n) for n, each in enumerate(states)]

    def scheduler(self) -> ShardState:
        """Return the state of the scheduler's shard (`Policy.scheduler`)."""
        shard, workers = len(self.slices), len(self.first)
        state = scheduler_state(_progress(self.checkpoint, self.experiment))
        if workers == len(state.watermarks):
            return replace(state, shard=shard)
        return replace(state, shard=shard, watermarks=(state.clock - 1,) * workers, gone=())


def kept_in(worker: int) -> str:
    """Return the name of the file with the saved state of a worker's script."""
    return f"{worker_name(worker)}.safetensors"


def model_of(worker: int) -> str:
    """Return the name, without suffix, of the file with the model of a script's worker."""
    return f"{worker_name(worker)}-model"


def state_of(checkpoint: Checkpoint, experiment: Experiment, server: int) -> ShardState:
    """Return the state with which a server begins, in any process; see `ResumePoint.state`."""
    slices = experiment.slices(checkpoint.index.layers)
    state = checkpoint.shard_state(server, slices, experiment.workers)
    if experiment.cut_off is None:
        return state
    return replace(state, clock=_progress(checkpoint, experiment)[0].clock, pending=())


def own_state_of(checkpoint: Checkpoint, experiment: Experiment, worker: int) -> ShardState | None:
    """Return what a worker without servers has besides the common model, in any process.

    The result is the same as of `Checkpoint.own_state`, except if the workers' models differ. Then
    a further worker begins with the mean of the models, which is the common model; if there are
    fewer workers, all begin with it.
    """
    state, strategy = checkpoint.own_state(worker, experiment.workers), experiment.peers
    assert strategy is not None
    if state is None or not strategy.saved_apart:
        return state
    has_its_own = state.shard == worker and experiment.workers >= checkpoint.index.workers
    return state if has_its_own else replace(state, parameters=Phantom(0))


def _progress(checkpoint: Checkpoint, experiment: Experiment) -> list[ShardState]:
    """Return the shards' states without tensors; all in one iteration if there are cut-offs."""
    states = [without_tensors(record) for record in checkpoint.index.shards]
    return states if experiment.cut_off is None else aligned(states)
