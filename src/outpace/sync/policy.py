"""What every policy is: a frozen dataclass that judges a view of a shard.

A policy has no clock, no randomness, no socket and no tensor in it; its fields are its
configuration. To add one: a file here, its name in `POLICIES`, a line in
tests/contracts/test_policies.py.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from outpace.messages import Pull
from outpace.sync.decision import Decision


class Buffer(StrEnum):
    """Under which clock a delayed pull is filed (FluentPS, section III-C).

    LAZY: answered when the shard has finished the puller's own iteration i, at clock
    i+1, so with every gradient up to i. SOFT: as early as the policy's bound allows.
    """

    LAZY = "lazy"
    SOFT = "soft"


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
    """What a policy may know of its shard."""

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
        """How many live workers have pushed iteration V or a later one."""

    @property
    def slowest(self) -> int:
        """The lowest iteration that is the last one pushed by a live worker; -1: none yet."""

    @property
    def fastest(self) -> int:
        """The highest iteration pushed; -1: none yet."""

    def watermark(self, worker: int) -> int:
        """The highest iteration this worker pushed; -1: none yet."""


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

    def may_advance(self, view: ShardView) -> bool:
        """May the shard finish iteration `view.clock`? Asked while a live worker is left."""


def everyone_arrived(view: ShardView) -> bool:
    """The push condition count[V] = N of FluentPS's table III, with those who left left out."""
    return view.reached >= view.live
