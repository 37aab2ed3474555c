"""The interface between the program of a worker without servers and its runtime.

A program knows only these methods, in virtual time and for real.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple, Protocol

from outpace.blocks.block import Block, Value
from outpace.blocks.sums import BlockSum
from outpace.support.units import Time


class PeerContext(Protocol):
    """A worker that averages with the other workers. The parameters are one block."""

    @property
    def now(self) -> Time:
        """Time in ns since the start of the run."""

    @property
    def worker(self) -> int:
        """The number of this worker."""

    @property
    def workers(self) -> int:
        """N, the number of workers at the beginning of the run."""

    @property
    def first_iteration(self) -> int:
        """The iteration to begin with; above 0 if a run is resumed from a checkpoint."""

    @property
    def unsent(self) -> Unsent:
        """The steps on its own model that this worker had not sent at a checkpoint."""

    def may_save(
        self,
        iteration: int,
        accumulated: AccumulatedGradient | None = None,
        unsent: Unsent | None = None,
    ) -> None:
        """Declare that this worker begins `iteration` next and that its models are all its state.

        All workers call this after the same all-reduces and before they join another one, so that
        each has the resulting parameters; with `saved_apart`, each after a different iteration.
        Until the worker computes again, only averages of two may change its models: the state of a
        script is saved when the script begins to compute. Only for strategies with `can_be_saved`.

        Args:
            accumulated: a sum that the worker has in addition to its models.
            unsent: steps that only its own model has. With `accumulated` or `unsent`, workers call
                this at different times and iterations; otherwise at the same iterations.
        """

    def common(self) -> CommonParameters:
        """Return the model with which all workers begin and which all change alike."""

    def own(self) -> OwnParameters:
        """Return a model with the same initial parameters that this worker alone changes."""

    def accumulated(self) -> AccumulatedGradient:
        """Return the sum of this worker's gradients; empty, or restored from a checkpoint."""

    def must_stop(self, iteration: int) -> bool:
        """True if this worker leaves instead of running that iteration.

        A script may end while it computes a gradient, so the answer can change from False to True.
        """

    async def compute(self, at: Parameters, iteration: int) -> Block | None:
        """Return the gradient at these parameters as they are now; None: it is not usable.

        The gradient is valid until the next `compute`, because a script's gradient may be the
        memory of its `p.grad`. To all-reduce a gradient while the next one is computed, add it to
        `accumulated()`, which copies it, and pass on the result of `take()`.

        Args:
            at: the model with the parameters.
            iteration: number of the iteration, which decides the batch.
        """

    def begin_all_reduce(self, value: Block | None, weight: int = 1) -> Reduction:
        """Begin to add up `value` and the values of all other workers; does not block.

        The n-th reduction of a worker is joined with the n-th reductions of all others. A worker
        may begin the next reduction when it has the result of the last one.

        Args:
            value: belongs to the runtime afterwards, and must stay valid until the result has
                arrived (see `compute`); None: join the others without a value.
            weight: number of iterations in the value.
        """

    def begin_exchange(self, iteration: int) -> Exchange:
        """Begin to average the worker's own parameters with a random other worker's.

        Does not block; a worker may have one exchange at a time. The program of the other
        worker is not involved.

        Args:
            iteration: the last finished iteration of this worker, or the iteration under way.
        """

    def meet(self, *, last: bool = False) -> Meeting:
        """Enter the next meeting of all workers that are in the run; does not block.

        A worker enters a meeting only when the previous meeting is over.

        Args:
            last: True: this worker enters no later meeting: the others never wait for it again, and
                it does not wait in this meeting.
        """

    def iteration_finished(
        self, iteration: int, started: Time, computed: Time, finished: Time, held: Time
    ) -> None:
        """Note an iteration in the trace.

        Args:
            iteration: number of the iteration.
            started, computed, finished: when the iteration began, when its gradient was there, and
                when the iteration ended (ns).
            held: ns that the worker waited for others to join a reduction.
        """


class Unsent(NamedTuple):
    """Steps of a worker on its own model since it last sent them in an all-reduce."""

    steps: int  # number of steps, including steps without a gradient
    gradients: int


class Parameters(Protocol):
    """A model."""

    def read(self) -> Value:
        """Return the parameters as they are now; the caller must not change them."""


class CommonParameters(Parameters, Protocol):
    """A model that every worker has, changed by the same commits in the same order."""

    def commit(self, gradient: Value, divisor: float, gradients: int, factor: float = 1.0) -> None:
        """Take one step along gradient / divisor.

        Args:
            gradient: belongs to the model afterwards.
            gradients: number of gradients in it; the optimizer's schedule counts N of them as an
                iteration.
            factor: factor of the learning rate in this step.
        """

    def replica(self) -> ReplicaParameters:
        """Return a copy for this worker to change."""


class ReplicaParameters(Parameters, Protocol):
    """A copy of the common parameters, which follows them until it takes a step."""

    @property
    def takes_plain_steps(self) -> bool:
        """True if the run's optimizer is SGD: steps are w ← w − rate·g, without momentum."""

    def step(self, gradient: Value, iteration: int) -> None:
        """Take a step along the gradient.

        With SGD it is a plain step. Another optimizer is copied, and the copy takes the step; the
        copy begins with the state that belongs to the common parameters last followed.
        """

    def stay(self) -> None:
        """Keep the present values, even when the common parameters change."""

    def follow(self) -> None:
        """Be equal to the common parameters, even when they change, until the next step."""


class AccumulatedGradient(Protocol):
    """A sum of gradients."""

    @property
    def count(self) -> int:
        """Number of gradients in the sum."""

    def add(self, gradient: Block) -> None:
        """Add a gradient; `ReplicaParameters.step` may still use it afterwards."""

    def take(self) -> tuple[Block, int]:
        """Return the sum and its count, for an all-reduce, and begin an empty one."""

    def parts(self) -> list[tuple[int, Value]]:
        """Return a copy of the sum, for `restore`."""

    def restore(self, parts: Iterable[tuple[int, Value]], count: int) -> None:
        """Begin with a copy of the `parts` of another sum of `count` gradients."""


class OwnParameters(Parameters, Protocol):
    """A model of one worker alone."""

    def step(self, gradient: Value, iteration: int) -> None:
        """Take one step along the gradient, which belongs to the model afterwards."""

    def replace(self, parameters: Value) -> None:
        """Replace the parameters; the optimizer keeps its state, such as momentum."""


class Reduction(Protocol):
    """An all-reduce that this worker has joined."""

    @property
    def done(self) -> bool:
        """True if the result has arrived."""

    @property
    def began(self) -> Time:
        """Time when all had joined it, in ns since the start of the run; known once it is done."""

    async def result(self) -> Reduced:
        """Wait for the result, which is the same for all workers."""


class Exchange(Protocol):
    """An average of two workers' parameters."""

    @property
    def began(self) -> Time:
        """Time when both were free, in ns since the start of the run; known once it is over."""

    async def over(self) -> None:
        """Wait until both workers have the mean."""


class Meeting(Protocol):
    """A point in the program at which workers wait for each other."""

    @property
    def ended(self) -> Time:
        """Time when all workers had joined, in ns since the start of the run; known afterwards."""

    async def over(self) -> None:
        """Wait until all workers have entered the meeting."""


class Reduced:
    """The result of an all-reduce. A program may ask for `mean` or for `total`, not for both."""

    def __init__(self, values: BlockSum, weight: int) -> None:
        self._values = values
        self.weight = weight  # sum of the values of all workers that joined
        self.members = values.count  # number of workers that gave a value

    @cached_property
    def total(self) -> Value:
        """The sum of the values."""
        return self._values.total()

    @cached_property
    def mean(self) -> Value:
        """The sum divided by the number of workers that gave a value."""
        return self._values.mean()
