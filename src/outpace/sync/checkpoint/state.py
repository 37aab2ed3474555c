"""The state with which a shard continues, and the iterations at which its workers begin.

A worker that begins in the middle of a run needs only the number of its first iteration
(`first_iteration`). This number is above every iteration that a shard has of the worker, so no
gradient is applied twice. The worker tells every server (`Rejoin`), which then counts all earlier
iterations as pushed. So gaps are closed, and no barrier waits for a push that never arrives. Then
the worker pulls. The shards judge the pull like any other, so all bounds hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch

from outpace.blocks.block import Phantom, StepSettings, Value
from outpace.optim import OptimizerState
from outpace.sync.policy import Scale


@dataclass(frozen=True, slots=True)
class PendingIteration:
    """The partial sum of the gradients of an iteration that a shard has not finished.

    Attributes:
        scale: how the sum becomes a step.
        workers: number of workers for which the sum is made.
        count: gradients in the sum.
        parts: nodes of the tree of sums (`blocks.sums`) and the sum at each node; if gradients are
            added in the order of arrival, there is one part at node 0. Never changed afterwards.
        pushes: worker and version of each push whose gradient is in the sum.
        settings: settings of the workers that sent settings (`StepSettings`).
    """

    iteration: int
    scale: Scale
    workers: int
    count: int
    parts: tuple[tuple[int, Value], ...]
    pushes: tuple[tuple[int, int], ...]
    settings: tuple[tuple[int, StepSettings], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardState:
    """All that a shard needs to continue, except what its workers request again.

    It does not contain held pulls, pauses, the start of a wait for more pushes, significances,
    times of pushes, or gradients that wait for a scheduler's decision.

    Attributes:
        clock: V, the number of iterations finished.
        version: number of updates of the parameters.
        watermarks: highest iteration that each worker has pushed; -1: none.
        gone: workers that had left the run.
        pushes: number of pushes taken.
        furthest: progress of training in iterations, for schedules of the learning rate.
        mixed: last iteration with gradients applied one by one (`Updates.follow`); -1: none.
        parameters: the shard's parameters, 1-D; never changed afterwards.
        optimizer: a copy of the optimizer's state.
        pending: iterations that are not finished, ascending. Empty if gradients are applied on
            arrival, or if the state was taken between two iterations.
    """

    shard: int
    clock: int
    version: int
    parameters: Value
    watermarks: tuple[int, ...] = ()
    gone: tuple[int, ...] = ()
    pushes: int = 0
    furthest: float = 0.0
    mixed: int = -1
    optimizer: OptimizerState = field(default_factory=dict)
    pending: tuple[PendingIteration, ...] = ()

    @property
    def nbytes(self) -> int:
        """The bytes of the parameters and of the optimizer's state."""
        return self.parameters.nbytes + _bytes_in(self.optimizer)


def _bytes_in(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.nbytes
    if isinstance(value, dict):
        return sum(map(_bytes_in, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_bytes_in, value))
    return 0


class Progress(Protocol):
    """What a shard knows about its workers; see `ShardState`."""

    @property
    def watermarks(self) -> tuple[int, ...]: ...

    @property
    def gone(self) -> tuple[int, ...]: ...


def lacking(shards: Iterable[Progress], last: Mapping[int, int]) -> set[int]:
    """Return the workers that have left the training, but after the shards were saved.

    A shard lacks the last gradients of such a worker, and no other worker would compute them.

    Args:
        last: for each worker that has left, the last iteration that it pushed; -1: none.
    """
    return {
        worker
        for shard in shards
        for worker, iteration in last.items()
        if shard.watermarks[worker] < iteration and worker not in shard.gone
    }


def first_iteration(worker: int, states: Sequence[ShardState]) -> int:
    """Return the first iteration of a worker that begins with shards in these states.

    The iteration is above every iteration that a shard has of this worker, and no shard has
    finished it.
    """
    return max(max(1 + state.watermarks[worker], state.clock) for state in states)


def gaps(states: Sequence[ShardState]) -> int:
    """Return the number of workers' iterations that some shards have and others lack.

    Parts of these gradients are lost, because no worker sends them again. Iterations that a shard
    has finished without the worker do not count. A watermark does not tell which iterations below
    it were pushed, so for workers that skip iterations this is an upper bound. Shards that were
    saved between the same two iterations have no gaps.
    """
    total = 0
    for worker in range(len(states[0].watermarks)):
        highest = max(state.watermarks[worker] for state in states)
        lowest = min(max(state.watermarks[worker], state.clock - 1) for state in states)
        total += max(0, highest - lowest)
    return total


def aligned(states: Sequence[ShardState]) -> list[ShardState]:
    """Return states that all begin the same iteration, for a scheduler that closes iterations.

    States that were saved between the same two iterations are returned unchanged. Otherwise all
    shards continue at the first iteration that no worker has pushed; gradients collected for
    earlier iterations are left out.
    """
    clock = max(max(1 + max(state.watermarks), state.clock) for state in states)
    return [replace(state, clock=clock, pending=()) for state in states]


def scheduler_state(states: Sequence[ShardState]) -> ShardState:
    """Return the state of a scheduler's shard (`Policy.scheduler`) to continue with these shards.

    The state has the furthest progress of all shards, and no parameters.
    """
    clock = max(state.clock for state in states)
    watermarks = tuple(map(max, zip(*(state.watermarks for state in states), strict=True)))
    gone = set.intersection(*(set(state.gone) for state in states))
    return ShardState(
        shard=len(states),
        clock=clock,
        version=0,
        watermarks=watermarks,
        gone=tuple(sorted(gone)),
        furthest=float(clock),
        parameters=Phantom(0),
    )
