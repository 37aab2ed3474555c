"""Passes on the messages of one generation of a sender, each once and in order.

A connection over TCP does not lose or repeat messages, and keeps their order. The fence ensures
this for every kind of transport.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

Verdict: TypeAlias = Literal["due", "not due", "old", "unknown"]


class Fence:
    """Judges the messages of one sender.

    Attributes:
        generation: generation of the process whose messages are accepted.
        serial: number of the next message.
    """

    __slots__ = ("generation", "serial")

    def __init__(self, generation: int) -> None:
        self.generation, self.serial = generation, 0

    def verdict(self, generation: int, serial: int) -> Verdict:
        """Judge a message, without changing anything.

        Returns:
            due: it is the next message. not due: it is another message of this generation. old: its
                sender was replaced by another process, and must be told so. unknown: its generation
                does not exist yet.
        """
        if generation != self.generation:
            return "old" if generation < self.generation else "unknown"
        return "due" if serial == self.serial else "not due"

    def take(self) -> None:
        """Count the due message as taken."""
        self.serial += 1
