"""Contexts: the interfaces that a runtime offers to programs with servers.

Programs are coroutines that await nothing but these methods. A runtime implements the methods;
the kernel resumes the programs.
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


class Messages(Protocol):
    """Sends and receives the messages of one node."""

    def send(self, to: str, *messages: Message) -> None:
        """Send messages, to be delivered in this order; does not block.

        The messages of one call may be sent as one message.
        """

    async def recv(self) -> Message:
        """Return the next message for this node."""

    async def recv_within(self, timeout_s: float) -> Message | None:
        """Return the next message, or None if none arrives within `timeout_s` seconds.

        In virtual time, a message that arrives exactly at the time-out is returned; with a time-out
        of 0, all messages that are due now are delivered first. Raises ValueError if the time is
        negative or not finite.
        """


class Context(Messages, Protocol):
    """The methods that all programs may use, except for a server's program, which has a clock."""

    @property
    def now(self) -> Time:
        """The time in ns since the start of the run."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """A gradient whose computation was stopped.

    Attributes:
        share: computed share of the gradient; NaN: unknown.
    """

    share: float


# Called with the number of a server and its part of a gradient; None: abstain.
SendPart: TypeAlias = Callable[[int, Block | None], None]


class WorkerContext(Context, Protocol):
    """The context of a worker's program."""

    @property
    def worker(self) -> int: ...

    @property
    def servers(self) -> Sequence[str]:
        """The servers' addresses; server m owns block m."""

    @property
    def first_iteration(self) -> int | None:
        """The iteration to begin with in the middle of a run; None: the run has just begun."""

    async def recv_several(self, count: int) -> Sequence[Message]:
        """Return the next messages for this node: at least one, and at most `count`.

        This is for a worker that continues only when it has `count` messages. A runtime may wait
        for all of them.
        """

    def recv_nowait(self) -> Message | None:
        """Return the next message if one has arrived, else None."""

    def initial_parameters(self) -> list[Block]:
        """Return the blocks that all workers start from, made from the seed without messages."""

    def coin(self, iteration: int) -> float:
        """Return this worker's random number in [0, 1) for its pulls of the iteration."""

    def must_stop(self, iteration: int) -> bool:
        """True if this worker must leave instead of starting the iteration."""

    async def execute(self, parameters: Sequence[Block], iteration: int) -> Sequence[Block | None]:
        """Return the gradient, one block for each server; None: abstain."""

    async def execute_until(
        self, parameters: Sequence[Block], iteration: int, ends_it: Callable[[Message], bool]
    ) -> Sequence[Block | None] | Stopped:
        """Compute as `execute` does, but stop when `ends_it(message)` is true.

        `ends_it` is called with every message that arrives during the computation.
        """

    async def execute_in_parts(
        self, parameters: Sequence[Block], iteration: int, send: SendPart
    ) -> None:
        """Compute as `execute` does; call `send` once for each server when its part is complete.

        Parts may be complete before the computation has ended, in any order.
        """

    def iteration_finished(
        self,
        iteration: int,
        started: Time,
        computed: Time,
        finished: Time,
        held: Time,
        last_server: int,
    ) -> None:
        """Record an iteration in the trace.

        held: time for which the last server held the pull. last_server: NO_SERVER if the
        worker skipped its pull.
        """


WorkerProgram: TypeAlias = Callable[[WorkerContext], Coroutine[Any, Any, None]]


class SchedulerContext(Context, Protocol):
    """The context of a scheduler that cuts iterations off."""

    async def decide(self, decision: Callable[[], Wait]) -> Wait:
        """Return `decision()` after the time that the rule needs for it has passed."""

    def iteration_closed(
        self, iteration: int, opened: Time, ended: Time, wait: Wait, count: int
    ) -> None:
        """Record in the trace that an iteration was closed with `count` gradients."""

    def refuse(self, message: Message, error: ProtocolError) -> None:
        """Ignore the sender of an illegal message from now on, or raise the error."""
