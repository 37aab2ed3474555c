"""The divisions of the parameters among servers, as the process of a worker knows them."""

from __future__ import annotations

from functools import lru_cache

from outpace.blocks.division import Division, Ranges, size_of
from outpace.real.net.messages import PHANTOM
from outpace.sync.moving.worker import DividedServers


class Divisions:
    """The division with which the run begins, the present one, and the one before that.

    Until the plan of the run has come they are empty.

    Attributes:
        may_change: True if servers may join and leave the run.
        first: the division whose blocks the worker's program knows.
        present: the division of the servers that there are now.
        program: the context with which the program goes over to new divisions. The worker sets it;
            None: the program does not go over.
        program_has_left: set when the program has left the training, and does not go over any more.
    """

    def __init__(self, *, may_change: bool) -> None:
        self.may_change = may_change
        self.first = self.present = self._before = Division(0, {})
        self.program: DividedServers | None = None
        self.program_has_left = False
        self._dtype = ""

    @property
    def serving(self) -> Division:
        """The division of the servers that have a part for this worker.

        They keep their parts until its program goes over to the next division, or has left.
        """
        if self.program is None or self.program_has_left:
            return self.present
        return self.program.division

    def begin(self, first: Division, present: Division, dtype: str) -> None:
        """Take the divisions at the time of the plan. dtype: of the parameters."""
        self.first, self._dtype = first, dtype
        self.present = self._before = present

    def change(self, present: Division) -> None:
        """Take a new division, which begins now."""
        self._before, self.present = self.present, present

    def part(self, server: int, number: int) -> Ranges:
        """Return the part of a server in the division of this number; empty if it has none."""
        is_before = number == self._before.number  # an answer that crossed the GoOver
        return (self._before if is_before else self.present).parts.get(server, ())

    def block(self, server: int, number: int) -> tuple[str, int] | None:
        """Return dtype and elements of a server's block in the division of this number.

        None if the server has no part in it, or if the division of the run never changes.
        """
        ranges = self.part(server, number) if self.may_change else ()
        return None if not ranges else _block_of(self._dtype, ranges)


@lru_cache(64)
def _block_of(dtype: str, ranges: Ranges) -> tuple[str, int]:
    """Return dtype and elements of the block that has these ranges of the parameters."""
    return dtype, size_of(ranges) * (4 if dtype == PHANTOM else 1)
