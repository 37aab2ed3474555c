"""Gradients that a virtual worker pushes in parts, while its virtual time to compute passes.

When the part of a server is complete is estimated (`blocks.gathering.shares_until_ready`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from outpace.blocks.block import Block
from outpace.blocks.gathering import shares_until_ready
from outpace.support.units import Time
from outpace.sync.programs.context import SendPart


class Parts:
    """The parts of the servers, in the order in which backward makes them.

    Args:
        slices: of the flat parameters, one for each server.
        forward_share: of the time of a computation.

    Attributes:
        first_share: of the time of a computation, after which the first part is complete.
    """

    def __init__(self, slices: Sequence[slice], forward_share: float) -> None:
        shares = enumerate(shares_until_ready(slices, forward_share))
        self._order = sorted((share, server) for server, share in shares)
        self.first_share = self._order[0][0]

    def first_after(self, duration: Time) -> Time:
        """Return when the first part of a computation is complete, in ns after its start."""
        return round(self.first_share * duration)

    async def send(
        self,
        gradient: Sequence[Block | None],
        duration: Time,
        spend: Callable[[Time], Awaitable[None]],
        send: SendPart,
        spent: Time = 0,
    ) -> None:
        """Send each part when it is complete; return at the end of the computation.

        Args:
            duration: of the computation, in ns.
            spend: waits until so many ns more of it have passed.
            spent: ns of it that have passed already.
        """
        for share, server in self._order:
            left = round(share * duration) - spent
            if left > 0:
                await spend(left)
                spent += left
            send(server, gradient[server])
