"""Lets one generation of a sender through, and each of its messages once, in order.

A connection over TCP neither loses nor repeats a message, and changes no order. The fence makes
sure of it, whatever carries the messages.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

Verdict: TypeAlias = Literal["due", "not due", "old", "unknown"]


class Fence:
    """Judges the messages of one sender.

    Attributes:
        generation: of the process that is heard.
        serial: number of the message that is due.
    """

    __slots__ = ("generation", "serial")

    def __init__(self, generation: int) -> None:
        self.generation, self.serial = generation, 0

    def verdict(self, generation: int, serial: int) -> Verdict:
        """Judge a message, and change nothing.

        Returns:
            due: it is the next one. not due: it is another one. old: it is of a process whose place
            another one has taken, which is to be told so. unknown: of a generation that does not
            exist yet.
        """
        if generation != self.generation:
            return "old" if generation < self.generation else "unknown"
        return "due" if serial == self.serial else "not due"

    def take(self) -> None:
        """Count the message that is due as taken."""
        self.serial += 1
