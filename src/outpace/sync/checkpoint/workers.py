"""The states of workers without servers: the state of their common model, and of each worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from outpace.blocks.block import Phantom, Value, whole
from outpace.blocks.sums import ArrivalSum
from outpace.optim import OptimizerState
from outpace.sync.checkpoint.state import PendingIteration, ShardState
from outpace.sync.parameter_block import ParameterBlock
from outpace.sync.peers.context import AccumulatedGradient, PeerContext, Unsent
from outpace.sync.policy import Scale

NOTHING: Final = Unsent(0, 0)


@dataclass(frozen=True, slots=True)
class Restored:
    """What a worker continues with, in addition to its models.

    Attributes:
        averages: number of all-reduces, or of averages of two workers, before.
        updates: number of versions of the model that the worker evaluates.
        accumulated: gradients that the worker had accumulated.
        unsent: see `PeerContext.unsent`.
    """

    averages: int = 0
    updates: int = 0
    accumulated: PendingIteration | None = None
    unsent: Unsent = NOTHING

    @classmethod
    def of(cls, state: ShardState, kept: ShardState | None, updates: int = 0) -> Restored:
        """Return what a worker continues with; for state and kept see `restore_own`."""
        return cls(state.version, updates, _accumulated_in(state, kept), _unsent_in(kept))


def common_state(
    iterations: Mapping[int, int],
    averages: int,
    pushes: int,
    parameters: Value,
    optimizer: OptimizerState,
) -> ShardState:
    """Return the state of the common model when the workers begin these iterations.

    Args:
        averages: see `Restored`.
        pushes: number of gradients in the model.
    """
    return ShardState(
        shard=0,
        clock=min(iterations.values()),
        version=averages,
        watermarks=tuple(iterations[worker] - 1 for worker in sorted(iterations)),
        pushes=pushes,
        furthest=float(min(iterations.values())),
        parameters=parameters,
        optimizer=optimizer,
    )


def state_of_worker(
    worker: int,
    iteration: int,
    optimizer: OptimizerState,
    pending: tuple[PendingIteration, ...] = (),
    parameters: Value | None = None,
    steps: int = 0,
) -> ShardState:
    """Return the state of a worker that begins this iteration.

    Args:
        parameters: parameters of its own model; None: the common parameters.
        steps: number of steps that the worker has taken on its own model, if there is no common
            one.
    """
    return ShardState(
        shard=worker,
        clock=iteration,
        version=steps,
        parameters=Phantom(0) if parameters is None else parameters,
        optimizer=optimizer,
        pending=pending,
    )


def restore_own(block: ParameterBlock, state: ShardState, kept: ShardState | None) -> None:
    """Restore a worker's saved state in the block of its own model.

    Args:
        state: state of the model that all workers have.
        kept: state of the worker's own model and optimizer; None: the worker has none.
    """
    has_parameters = kept is not None and kept.parameters.nbytes > 0
    block.replace(whole(kept.parameters if kept and has_parameters else state.parameters))
    if kept is not None and kept.optimizer:
        block.load_optimizer_state(kept.optimizer)


def joined(sums: Sequence[PendingIteration]) -> tuple[PendingIteration, ...]:
    """Return the sum of the gradients that several workers had accumulated; empty if none."""
    if not sums:
        return ()
    first, *others = sums
    total = ArrivalSum()
    total.restore(first.parts, first.count)
    for each in others:
        for _, part in each.parts:
            total.add(0, part)
    count, pushes = (
        sum(each.count for each in sums),
        [push for each in sums for push in each.pushes],
    )
    return (replace(first, count=count, parts=tuple(total.parts()), pushes=tuple(pushes)),)


def unfinished(
    me: PeerContext,
    begins: int,
    accumulated: AccumulatedGradient | None,
    unsent: Unsent | None,
    versions: Sequence[int],
) -> PendingIteration | None:
    """Return a copy, or the size, of a worker's gradients that no all-reduce has; None: none.

    Args:
        begins: the iteration with which the worker continues.
        accumulated, unsent: see `PeerContext.may_save`.
        versions: versions of the common model at which the accumulated gradients were computed.
    """
    if unsent is not None:
        begun, gradients = begins - unsent.steps, unsent.gradients
        return PendingIteration(begun, Scale.SUM, me.workers, gradients, parts=(), pushes=())
    if accumulated is None:
        return None
    parts, pushes = accumulated.parts(), [(me.worker, version) for version in versions]
    count = accumulated.count
    return PendingIteration(begins, Scale.SUM, me.workers, count, tuple(parts), tuple(pushes))


def _unsent_in(kept: ShardState | None) -> Unsent:
    """Return the steps that `unfinished` has put into a state."""
    if kept is None or not kept.pending:
        return NOTHING
    (pending,) = kept.pending
    return Unsent(kept.clock - pending.iteration, pending.count)


def _accumulated_in(state: ShardState, kept: ShardState | None) -> PendingIteration | None:
    """Return the gradients that a worker had accumulated, if any; see `restore_own`."""
    if kept is None or not kept.pending:
        return None
    (pending,) = kept.pending
    if isinstance(state.parameters, Phantom):
        return replace(pending, parts=((0, state.parameters),))
    return pending
