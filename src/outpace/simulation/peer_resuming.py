"""How a run without servers in virtual time goes on from a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from outpace.engine.resuming import ResumePoint
from outpace.errors import ConfigError
from outpace.sync.checkpoint.state import PendingIteration, ShardState
from outpace.sync.checkpoint.workers import accumulated_in, restore_own, unsent_in
from outpace.sync.parameter_block import ParameterBlock
from outpace.sync.peers.context import Unsent
from outpace.sync.peers.parameters import SharedModel
from outpace.sync.peers.strategy import PeerStrategy


@dataclass(frozen=True, slots=True)
class Before:
    """The state of a run before it goes on.

    Attributes:
        averages: all-reduces, or averages of two workers.
        steps: of workers on parameters of their own.
        accumulated: gradients that a worker had accumulated, by worker.
        unsent: see `PeerContext.unsent`; by worker.
    """

    averages: int = 0
    steps: int = 0
    accumulated: dict[int, PendingIteration] = field(default_factory=dict)
    unsent: dict[int, Unsent] = field(default_factory=dict)


def take_up(
    point: ResumePoint,
    strategy: PeerStrategy,
    model: SharedModel,
    own_block: Callable[[int], ParameterBlock],
) -> Before:
    """Put the models of a checkpoint into the models of a new run.

    own_block: returns the block of a worker's own model. Raises ConfigError if the checkpoint
    cannot be read.
    """
    try:
        state, own = point.state(0), point.own_states()
    except OSError as error:
        raise ConfigError(f"{point.path}: {error}") from error
    return put_back(state, own, strategy, model, own_block)


def put_back(
    state: ShardState,
    own: Sequence[ShardState | None],
    strategy: PeerStrategy,
    model: SharedModel,
    own_block: Callable[[int], ParameterBlock],
) -> Before:
    """Put saved models into the models of a new run.

    Args:
        state: of the model that all workers have.
        own: what each worker had beside it, if anything.
        own_block: returns the block of a worker's own model.
    """
    if strategy.has_common:
        model.restore(state.parameters, state.optimizer, state.pushes, state.version)
    accumulated: dict[int, PendingIteration] = {}
    for worker, kept in enumerate(own):
        if strategy.has_own:
            restore_own(own_block(worker), state, kept)
        if (pending := accumulated_in(state, kept)) is not None:
            accumulated[worker] = pending
    steps = 0 if strategy.has_common else state.pushes
    unsent = {worker: unsent_in(kept) for worker, kept in enumerate(own)}
    return Before(state.version, steps, accumulated, unsent)
