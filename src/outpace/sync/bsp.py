"""Bulk synchronous parallel: everybody waits for everybody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outpace.messages import Pull
from outpace.sync.decision import Decision, Reason
from outpace.sync.policy import Apply, Buffer, Scale, ShardView, everyone_arrived


@dataclass(frozen=True, slots=True)
class Bsp:
    """Answers iteration i when all gradients of i are in: i < V (FluentPS, table III).

    Nobody can be ahead of V, so both buffers file under i+1 = V+1 and behave alike.
    """

    kind: Literal["bsp"] = "bsp"
    buffer: Buffer = Buffer.LAZY
    apply: Apply = Apply.ON_ADVANCE
    scale: Scale = Scale.MEAN

    def may_answer(self, pull: Pull, view: ShardView) -> Decision:
        lead = pull.iteration - view.clock
        if lead < 0:
            return Decision(None, Reason.WITHIN_BOUND, lead)
        release = pull.iteration if self.buffer is Buffer.LAZY else view.clock
        return Decision(release + 1, Reason.BEYOND_BOUND, lead)

    def may_advance(self, view: ShardView) -> bool:
        return everyone_arrived(view)
