"""Stale synchronous parallel: a worker may lead the slowest by a bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outpace.support.checks import Iterations
from outpace.sync.decision import Decision
from outpace.sync.messages import Pull
from outpace.sync.policy import Apply, Buffer, Scale, ShardView, WirePolicy, bounded


@dataclass(frozen=True, slots=True)
class Ssp(WirePolicy):
    """Answers iteration i while i < V + s (FluentPS, table III).

        outpace.sync.Ssp(staleness=3)  # sync: {kind: ssp, staleness: 3}

    A pull beyond the bound is released at clock i+1 (lazy) or as soon as the bound allows, max(V+1,
    i−s+1) (soft). With s = 0 the condition is the same as for BSP. Raises ValueError if the
    staleness is negative.

    Attributes:
        staleness: s, the iterations that a worker may lead the slowest.
    """

    staleness: Iterations
    kind: Literal["ssp"] = "ssp"
    buffer: Buffer = Buffer.LAZY
    apply: Apply = Apply.ON_ARRIVAL
    scale: Scale = Scale.MEAN

    def may_answer(self, pull: Pull, view: ShardView) -> Decision:
        return bounded(pull, view, self.staleness, self.buffer)
