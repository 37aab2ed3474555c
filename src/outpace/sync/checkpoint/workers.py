"""The states of workers without servers: of the model that they share, and of each worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from outpace.blocks.block import Phantom, Value
from outpace.optim import OptimizerState
from outpace.sync.checkpoint.state import PendingIteration, ShardState
from outpace.sync.parameter_block import ParameterBlock


def common_state(
    iterations: Mapping[int, int],
    averages: int,
    pushes: int,
    parameters: Value,
    optimizer: OptimizerState,
) -> ShardState:
    """Return the state of the model that workers have in common when they begin these iterations.

    Args:
        averages: as in `Before`.
        pushes: gradients in the model.
    """
    return ShardState(
        shard=0,
        clock=min(iterations.values()),
        version=averages,
        watermarks=tuple(iterations[worker] - 1 for worker in sorted(iterations)),
        gone=(),
        pushes=pushes,
        furthest=float(min(iterations.values())),
        mixed=-1,
        parameters=parameters,
        optimizer=optimizer,
    )


def state_of_worker(
    worker: int,
    iteration: int,
    optimizer: OptimizerState,
    pending: tuple[PendingIteration, ...] = (),
    parameters: Value | None = None,
) -> ShardState:
    """Return what a worker has when it begins this iteration.

    parameters: of its own model; None: those that all workers have in common.
    """
    return ShardState(
        shard=worker,
        clock=iteration,
        version=0,
        watermarks=(),
        gone=(),
        pushes=0,
        furthest=0.0,
        mixed=-1,
        parameters=Phantom(0) if parameters is None else parameters,
        optimizer=optimizer,
        pending=pending,
    )


def states_of_workers(
    blocks: Sequence[ParameterBlock], iterations: Mapping[int, int], *, apart: bool
) -> list[ShardState]:
    """Return the states of workers with models of their own, when they begin these iterations.

    apart: True if their parameters differ.
    """
    return [
        state_of_worker(
            worker,
            iterations[worker],
            block.optimizer_state(),
            parameters=block.read() if apart else None,
        )
        for worker, block in enumerate(blocks)
    ]
