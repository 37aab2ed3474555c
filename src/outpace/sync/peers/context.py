"""What the program of a worker may do where there are no servers.

The same in virtual time and for real, as in `context`: a program knows these few methods.
"""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

from outpace.blocks.block import Block, Value
from outpace.support.units import Time
from outpace.sync.parameter_block import BlockSum


class PeerContext(Protocol):
    """What the program of a worker has where there are no servers: it averages with the others.

    The parameters are one block.
    """

    @property
    def now(self) -> Time:
        """ns since the start of the run."""

    @property
    def workers(self) -> int:
        """N: how many the run was set up with."""

    def common(self) -> CommonParameters:
        """The model that everybody starts from, for all to change alike."""

    def own(self) -> OwnParameters:
        """The same, for this worker alone to change."""

    def gathered(self) -> Gathered:
        """A sum of this worker's gradients, empty at first."""

    def must_stop(self, iteration: int) -> bool:
        """Must this worker leave instead of that iteration? A script may end while it is at it."""

    async def compute(self, at: Parameters, iteration: int) -> Block | None:
        """The gradient at these parameters as they are now; None: there is none to be used."""

    def begin_all_reduce(self, value: Block | None, weight: int = 1) -> Reduction:
        """Add this up with what all the others give, once they do; does not block.

        A worker's first reduction is that of everybody's first, and so on: it may begin the next
        one when it has the result of the last. weight: the iterations that are in it. The value
        is given away. None: join the others without adding anything.
        """

    def begin_exchange(self, iteration: int) -> Exchange:
        """Average this worker's own parameters with those of another, drawn at random.

        The other need not do anything for it. Does not block; one at a time.
        """

    def leave(self) -> None:
        """Nobody waits for this worker any more. The last thing it does."""

    def iteration_finished(
        self, iteration: int, started: Time, computed: Time, finished: Time, held: Time
    ) -> None:
        """For the trace. `held`: how long it waited for others to join a reduction."""


class Parameters(Protocol):
    """A model."""

    def read(self) -> Value:
        """As they are now; not to be changed."""


class CommonParameters(Parameters, Protocol):
    """A model that every worker has, and changes by the same commits in the same order."""

    def commit(self, gradient: Value, divisor: float, gradients: int) -> None:
        """Take one step along gradient / divisor, which so many gradients are in.

        The gradient is given away. The optimizer's schedule counts N gradients as an iteration.
        """

    def replica(self) -> ReplicaParameters:
        """A copy for this worker to change; at first the same."""


class ReplicaParameters(Parameters, Protocol):
    """A copy of the common parameters, or these themselves until it takes a step."""

    def step(self, gradient: Value, iteration: int) -> None:
        """Take a plain step along the gradient, without momentum and the like."""

    def stay(self) -> None:
        """Be what the common parameters are now, whatever becomes of them."""

    def follow(self) -> None:
        """Be the common parameters again, whatever becomes of them, until the next step."""


class Gathered(Protocol):
    """A sum of gradients."""

    count: int  # of them

    def add(self, gradient: Block) -> None:
        """Add one, which `ReplicaParameters.step` may still be given."""

    def take(self) -> tuple[Block, int]:
        """The sum and how many are in it, for an all-reduce; from now on there is nothing."""


class OwnParameters(Parameters, Protocol):
    """A model of one worker alone."""

    def step(self, gradient: Value, iteration: int) -> None:
        """Take one step along the gradient, which is given away."""

    def replace(self, parameters: Value) -> None:
        """Go on from these. What the optimizer has gathered, such as momentum, stays."""


class Reduction(Protocol):
    """An all-reduce that this worker takes part in."""

    @property
    def done(self) -> bool:
        """Is the result here?"""

    @property
    def began(self) -> Time:
        """When all had joined (ns since the start of the run); known once it is done."""

    async def result(self) -> Reduced:
        """What came out, the same for everybody; blocks until it is there."""


class Exchange(Protocol):
    """An average of two workers."""

    @property
    def began(self) -> Time:
        """When both were free (ns since the start of the run); known when it is over."""

    async def over(self) -> None:
        """Block until both have the mean."""


class Reduced:
    """What an all-reduce came to. Of `mean` and `total` only one may be asked for."""

    def __init__(self, values: BlockSum, weight: int) -> None:
        self._values = values
        self.weight = weight  # of all who took part
        self.members = values.count  # how many gave something

    @cached_property
    def total(self) -> Value:
        """The sum."""
        return self._values.total()

    @cached_property
    def mean(self) -> Value:
        """The same divided by how many gave something."""
        return self._values.mean()
