"""What a program may do: the same in virtual time and for real.

Programs are coroutines over these few methods and nothing else. A runtime implements
them; the kernel resumes the programs.
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
    """What every program has."""

    @property
    def now(self) -> Time:
        """ns since the start of the run."""

    def send(self, to: str, *messages: Message) -> None:
        """Hand messages over for delivery in this order; does not block.

        Those handed over together may travel as one.
        """

    async def recv(self) -> Message:
        """The next message for this node."""

    async def recv_within(self, timeout_s: float) -> Message | None:
        """The next message, or None if none comes in that time.

        What comes at the very end of it counts, in virtual time: time is up after all else
        that is due at that instant. So with 0 everything due now is delivered first. Raises
        ValueError if the time is negative or not finite.
        """


@dataclass(frozen=True, slots=True)
class Stopped:
    """A gradient that was not computed to its end. share: how much of it was; NaN: unknown."""

    share: float


class WorkerContext(Context, Protocol):
    """What a worker's program has beside that."""

    @property
    def worker(self) -> int: ...

    @property
    def servers(self) -> Sequence[str]:
        """The servers' addresses; server m owns block m."""

    def recv_nowait(self) -> Message | None:
        """The next message if it is there already, else None."""

    def initial_parameters(self) -> list[Block]:
        """The blocks everybody starts from, at no cost: the run's seed makes them."""

    def coin(self, iteration: int) -> float:
        """This worker's number in [0, 1) for its pulls of that iteration."""

    def must_stop(self, iteration: int) -> bool:
        """Must this worker leave instead of starting that iteration?"""

    async def execute(self, parameters: Sequence[Block], iteration: int) -> Sequence[Block | None]:
        """Compute the gradient, one block for each server; None: abstain."""

    def iteration_finished(
        self,
        iteration: int,
        started: Time,
        computed: Time,
        finished: Time,
        held: Time,
        last_server: int,
    ) -> None:
        """For the trace. `held`: how long the server that answered last kept the pull."""


class AbortableContext(WorkerContext, Protocol):
    """That of a worker whose computation can be stopped; every runtime has it."""

    async def execute_until(
        self, parameters: Sequence[Block], iteration: int, ends_it: Callable[[Message], bool]
    ) -> Sequence[Block | None] | Stopped:
        """As `execute`, but stop if `ends_it` says so of a message that comes meanwhile.

        It is given all of them.
        """


WorkerProgram: TypeAlias = Callable[[WorkerContext], Coroutine[Any, Any, None]]


class SchedulerContext(Context, Protocol):
    """What the program of a scheduler that cuts iterations off has beside the common part."""

    def iteration_closed(
        self, iteration: int, opened: Time, ended: Time, wait: Wait, count: int
    ) -> None:
        """For the trace: it is over, with so many gradients; `wait` was the plan."""

    def refuse(self, message: Message, error: ProtocolError) -> None:
        """As that of a server."""
