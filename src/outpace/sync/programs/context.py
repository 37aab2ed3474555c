"""The contexts of programs with servers: all that a program may use, in every runtime.

Programs are coroutines over these methods and nothing else. A runtime implements the
methods; the kernel resumes the programs.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from outpace.blocks.block import Block
from outpace.errors import ProtocolError
from outpace.predict.interface import Wait
from outpace.support.units import Time
from outpace.sync.messages import Message


class Context(Protocol):
    """The methods of every program."""

    @property
    def now(self) -> Time:
        """ns since the start of the run."""

    def send(self, to: str, *messages: Message) -> None:
        """Hand messages over for delivery in this order; does not block.

        Messages of one call may travel as one.
        """

    async def recv(self) -> Message:
        """Return the next message for this node."""

    async def recv_within(self, timeout_s: float) -> Message | None:
        """Return the next message, or None if none comes in that time.

        In virtual time a message that comes at the very end of the time counts; with 0,
        everything that is due now is delivered first. Raises ValueError if the time is negative
        or not finite.
        """


@dataclass(frozen=True, slots=True)
class Stopped:
    """A gradient that was not computed to its end. share: the part computed; NaN: unknown."""

    share: float


class WorkerContext(Context, Protocol):
    """The context of a worker's program."""

    @property
    def worker(self) -> int: ...

    @property
    def servers(self) -> Sequence[str]:
        """The servers' addresses; server m owns block m."""

    def recv_nowait(self) -> Message | None:
        """Return the next message if it is there already, else None."""

    def initial_parameters(self) -> list[Block]:
        """Return the blocks that all workers start from, made of the seed at no cost."""

    def coin(self, iteration: int) -> float:
        """Return this worker's random number in [0, 1) for its pulls of that iteration."""

    def must_stop(self, iteration: int) -> bool:
        """True if this worker must leave instead of starting that iteration."""

    async def execute(self, parameters: Sequence[Block], iteration: int) -> Sequence[Block | None]:
        """Return the gradient, one block for each server; None: abstain."""

    def iteration_finished(
        self,
        iteration: int,
        started: Time,
        computed: Time,
        finished: Time,
        held: Time,
        last_server: int,
    ) -> None:
        """Note an iteration in the trace. held: time that the last server kept the pull."""


class AbortableContext(WorkerContext, Protocol):
    """The context of a worker whose computation can be stopped; every runtime has it."""

    async def execute_until(
        self, parameters: Sequence[Block], iteration: int, ends_it: Callable[[Message], bool]
    ) -> Sequence[Block | None] | Stopped:
        """Do as `execute`, but stop when `ends_it` is true of a message that comes meanwhile.

        `ends_it` is called with every such message.
        """


WorkerProgram: TypeAlias = Callable[[WorkerContext], Coroutine[Any, Any, None]]


class SchedulerContext(Context, Protocol):
    """The context of a scheduler that cuts iterations off."""

    def iteration_closed(
        self, iteration: int, opened: Time, ended: Time, wait: Wait, count: int
    ) -> None:
        """Note in the trace that an iteration is over, with so many gradients."""

    def refuse(self, message: Message, error: ProtocolError) -> None:
        """Ignore the sender of a message that broke the protocol from now on, or raise."""
