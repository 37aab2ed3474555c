"""Skipped pushes and pulls: a worker chooses not to send (PSP-SGD, third contribution).

In each iteration it is decided, for all servers alike, whether a worker skips: with a probability,
in every n-th iteration, or by the user's condition.

A skipped push sends no gradient. A push without gradient informs the servers about the worker's
progress, so that no barrier and no quorum waits for it. The gradient is dropped, as PSP-SGD does
with every gradient that a server does not wait for, or it is added to the next gradient that the
worker pushes, as in methods with error feedback (Stich, Cordonnier and Jaggi, NeurIPS 2018).

A worker that skips a pull asks for no parameters and does not wait. It begins the next iteration
with the parameters that it has. Its next pull is judged as usual, so its lead over a barrier is at
most `in_a_row` iterations greater than otherwise. After its last iteration it pulls, so that all
its pushes have arrived when it leaves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field

from outpace.blocks.block import Block, Deferred, Value, value_of
from outpace.blocks.sums import norm_of
from outpace.support.checks import Decay, check_ranges
from outpace.support.paths import TARGET
from outpace.support.randomness import RandomStream
from outpace.support.user_code import load_target, require_target
from outpace.sync.conditions import Condition
from outpace.sync.messages import Message, Push
from outpace.sync.parameter_block import plus
from outpace.sync.programs.context import WorkerContext
from outpace.sync.programs.forwarding import ForwardingContext


@dataclass(frozen=True, slots=True)
class WorkerView:
    """The state of a worker, as a user's condition for skipping a pull gets it.

    Attributes:
        worker: number of the worker.
        iteration: the iteration whose pull, or push, may be skipped.
        in_a_row: number of pulls, or pushes, that the worker has just skipped one after the other.
    """

    worker: int
    iteration: int
    in_a_row: int


@dataclass(frozen=True, slots=True)
class PushView(WorkerView):
    """The state of a worker, as a user's condition for skipping a push gets it."""

    _norm: Callable[[], float]

    def norm(self) -> float:
        """Return |g| of the gradient that would be sent; 0 for the task `timing`.

        With `gradient: accumulate`, the norm includes the gradients that were skipped before.
        """
        return self._norm()


@dataclass(frozen=True, slots=True)
class Skip:
    """When a worker skips. Exactly one of probability, every and condition must be given.

    Args:
        probability: probability to skip an iteration, drawn from (seed, worker, iteration); below
            1.
        every: n: skip iterations n − 1, 2n − 1, ... (counted from 0); at least 2.
        condition: `file.py:function` or `module:function`, called with a view and `arguments`;
            returns True to skip.
        arguments: further arguments of the condition.

    Raises:
        ValueError: for values out of range, or if not exactly one of them is given.
    """

    probability: Decay | None = None
    every: Annotated[int, Field(ge=2, le=10**9)] | None = None
    condition: str | None = field(default=None, metadata=TARGET)
    arguments: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_ranges(self)
        given = [self.probability, self.every, self.condition]
        if len(given) - given.count(None) != 1:
            raise ValueError("needs exactly one of probability, every and condition")
        if self.condition is not None:
            require_target(self.condition)
        elif self.arguments:
            raise ValueError("arguments: only a condition takes arguments")

    def loaded(self, key: str) -> Condition | None:
        """Return the user's condition with its arguments, if there is one. Raises ConfigError."""
        if self.condition is None:
            return None
        function = load_target(self.condition, f"{key}.condition")
        return Condition(self.condition, partial(function, **self.arguments))


@dataclass(frozen=True, slots=True)
class SkippedPush(Skip):
    """When a worker skips a push, and what happens to the gradient.

    Attributes:
        gradient: what happens to a skipped gradient. drop: it is lost. accumulate: it is added to
            the next gradient that the worker pushes, and both count as one; it is lost if the run
            ends first. A script can only drop.
    """

    gradient: Literal["drop", "accumulate"] = "drop"


@dataclass(frozen=True, slots=True)
class SkippedPull(Skip):
    """When a worker skips a pull.

    Attributes:
        in_a_row: number of skipped pulls after which the worker pulls, from 1 to 100,000.
    """

    in_a_row: Annotated[int, Field(ge=1, le=100_000)] = 16


@dataclass(frozen=True, slots=True)
class Skips:
    """The messages that workers skip. Raises ValueError if there is neither a push nor a pull.

    Attributes:
        push: when a push is skipped.
        pull: when a pull is skipped.
    """

    push: SkippedPush | None = None
    pull: SkippedPull | None = None

    def __post_init__(self) -> None:
        if self.push is None and self.pull is None:
            raise ValueError("needs push, pull or both")

    @property
    def pulls_in_a_row(self) -> int:
        """The number of pulls that a worker may skip in a row."""
        return 0 if self.pull is None else self.pull.in_a_row

    def load(self) -> None:
        """Load the user's conditions. Raises ConfigError."""
        for key, skip in (("skip.push", self.push), ("skip.pull", self.pull)):
            if skip is not None:
                skip.loaded(key)


class Choice:
    """Decides in each iteration whether one worker skips.

    Args:
        what: push or pull.
        seed: seed of the run.
    """

    def __init__(self, skip: Skip, what: Literal["push", "pull"], seed: int, worker: int) -> None:
        self._skip, self._what, self._worker = skip, what, worker
        self._condition = skip.loaded(f"skip.{what}")
        self._draws = RandomStream(seed, f"skip {what}", worker, lambda source, n: source.random(n))
        self._most = skip.in_a_row if isinstance(skip, SkippedPull) else math.inf
        self.in_a_row = 0  # skipped since the last message

    def skips(self, iteration: int, norm: Callable[[], float] | None = None) -> bool:
        """Return whether to skip in this iteration. Raises PolicyError."""
        skips = self.in_a_row < self._most and self._judged(iteration, norm)
        self.in_a_row = self.in_a_row + 1 if skips else 0
        return skips

    def _judged(self, iteration: int, norm: Callable[[], float] | None) -> bool:
        skip = self._skip
        if skip.probability is not None:
            return self._draws[iteration] < skip.probability
        if skip.every is not None:
            return (iteration + 1) % skip.every == 0
        view = WorkerView(self._worker, iteration, self.in_a_row)
        if norm is not None:
            view = PushView(self._worker, iteration, self.in_a_row, norm)
        condition, place = self._condition, f"skip.{self._what}"
        assert condition is not None
        what = f"for worker {self._worker}'s {self._what} of iteration {iteration}"
        return condition.truth(condition(what, place, view), what, place)


class SkippingWorker(ForwardingContext):
    """The context of a worker's program in a run in which workers skip pushes.

    For the program, the gradient of a skipped push is None for every server. Pushes that have no
    gradient for another reason, such as a cut-off, do not count as skipped: the condition is not
    asked, and accumulated gradients wait for the next push.
    """

    def __init__(self, me: WorkerContext, skip: SkippedPush, seed: int) -> None:
        super().__init__(me)
        self._accumulates = skip.gradient == "accumulate"
        self._choice = Choice(skip, "push", seed, me.worker)
        self._skipped = -1  # the last iteration whose push is skipped
        self._kept: list[Value] = []  # what has been accumulated, by server

    def send(self, to: str, *messages: Message) -> None:
        for message in messages:
            if isinstance(message, Push):
                message.skipped = message.iteration == self._skipped
        self._me.send(to, *messages)

    async def execute(self, parameters: Sequence[Block], iteration: int) -> Sequence[Block | None]:
        computed = await self._me.execute(parameters, iteration)
        gradient = [block for block in computed if block is not None]
        if len(gradient) < len(self.servers):
            return computed
        if self._kept:
            pairs = zip(self._kept, gradient, strict=True)
            gradient, self._kept = [plus(kept, 1.0, block) for kept, block in pairs], []

        def norm() -> float:
            # each gradient can be read only once
            gradient[:] = [value_of(block) for block in gradient]
            return math.hypot(*map(norm_of, gradient))

        if not self._choice.skips(iteration, norm):
            return gradient
        self._skipped = iteration
        if self._accumulates:
            self._kept = [_own(block) for block in gradient]
        return [None] * len(gradient)


def _own(block: Block) -> Value:
    """Return the block's value in memory that nothing else changes."""
    return block.value() if isinstance(block, Deferred) else block.clone()
