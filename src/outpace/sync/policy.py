"""What every policy is: a frozen dataclass that judges a view of a shard.

A policy has no clock, no randomness, no socket and no tensor in it; its fields are its
configuration. To add one: a file here, its name in `POLICIES`, a line in
tests/contracts/test_policies.py.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Protocol

from outpace.support.units import Time
from outpace.sync.decision import Decision
from outpace.sync.messages import Pull


class Buffer(StrEnum):
    """Under which clock a delayed pull is filed (FluentPS, section III-C).

    LAZY: answered when the shard has finished the puller's own iteration i, at clock
    i+1, so with every gradient up to i. SOFT: as early as the policy's bound allows.
    """

    LAZY = "lazy"
    SOFT = "soft"

    def release_clock(self, pull: Pull, view: ShardView, bound: int) -> int:
        """When a pull of iteration i may be answered that must not lead V by `bound`."""
        if self is Buffer.LAZY:
            return pull.iteration + 1
        return max(view.clock + 1, pull.iteration - bound + 1)


class Apply(StrEnum):
    """When a gradient changes the parameters."""

    ON_ARRIVAL = "on-arrival"  # each alone, as it comes (FluentPS, algorithm 1)
    ON_ADVANCE = "on-advance"  # all of an iteration in one update, when the clock advances


class Scale(StrEnum):
    """What the gradients are divided by."""

    MEAN = "mean"  # on arrival by N, the number of workers; on advance by how many came
    SUM = "sum"  # by nothing
    # On arrival only: by the gradient's staleness, at least 1 (Zhang, Gupta, Lian and Liu,
    # Staleness-aware Async-SGD, IJCAI 2016, equation 5).
    STALENESS = "staleness"


class ShardView(Protocol):
    """What a policy, or a condition of the user's, may know of its shard.

    Iterations count from 0; a worker's progress is the last one that it has pushed.
    """

    @property
    def shard(self) -> int:
        """The number of the shard."""

    @property
    def clock(self) -> int:
        """V: the number of iterations this shard has finished."""

    @property
    def workers(self) -> int:
        """N: how many workers the run was set up with."""

    @property
    def live(self) -> int:
        """How many of them have not left."""

    @property
    def reached(self) -> int:
        """How many live workers have pushed iteration V or a later one: `count(clock)`."""

    @property
    def slowest(self) -> int:
        """The lowest iteration that is the last one pushed by a live worker; -1: none yet."""

    @property
    def fastest(self) -> int:
        """The highest iteration pushed; -1: none yet."""

    def progress(self, worker: int) -> int:
        """The highest iteration this worker pushed; -1: none yet."""

    def is_live(self, worker: int) -> bool:
        """Has it not left?"""

    def count(self, iteration: int) -> int:
        """How many live workers have pushed this iteration or a later one."""

    @property
    def awaited(self) -> int | None:
        """How many of those whose gradients count for iteration V have still to push it.

        None: nobody has said yet whose do. Kept only for policies that are `cut_off`.
        """

    def significance(self, worker: int) -> float:
        """|g| / |w| of this worker's last gradient on this shard; 0.0: none yet.

        Kept only for policies that have `uses_significance`.
        """

    def laggard(self) -> int:
        """A live worker that has not pushed iteration V, while there is one."""

    def last_push(self, worker: int) -> Time:
        """When its last push came, ns since the start of the run."""

    def step_time(self, worker: int) -> Time:
        """From the last answer to its last push before, to that push: ns it took for a step."""


class Policy(Protocol):
    """When may a shard answer, when may it advance?"""

    @property
    def kind(self) -> str: ...

    @property
    def apply(self) -> Apply: ...

    @property
    def scale(self) -> Scale: ...

    def may_answer(self, pull: Pull, view: ShardView) -> Decision:
        """Judge a pull. A release clock must lie beyond `view.clock`."""

    def patience_s(self, view: ShardView) -> float:
        """How long the shard still waits for pushes before it finishes iteration V.

        0.0: not at all. Infinite: until somebody else has pushed, or left. Else seconds,
        counted from when the answer was first finite for this V.
        """


def everyone_arrived(view: ShardView) -> float:
    """The push condition count[V] = N of FluentPS's table III, with those who left left out."""
    return 0.0 if view.reached >= view.live else math.inf


def quorum_arrived(view: ShardView, quorum: int, timeout_s: float = 0.0) -> float:
    """So many have, and then so many seconds have passed, or all have."""
    if view.reached >= view.live:
        return 0.0
    return timeout_s if view.reached >= quorum else math.inf
