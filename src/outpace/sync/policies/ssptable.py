"""SSPtable: the stale synchronous parallel of Petuum, with tables cached by the workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outpace.support.checks import require
from outpace.sync.decision import Decision, Reason
from outpace.sync.messages import Pull
from outpace.sync.policies.ssp import require_staleness
from outpace.sync.policy import Apply, Buffer, Scale, ShardView, everyone_arrived


@dataclass(frozen=True, slots=True)
class SspTable:
    """SSP with reads from a cache, which FluentPS takes as its baseline (figures 1 and 7).

    A worker reads its cached copy while that is at most `staleness` iterations old, and
    pulls only then (`programs.cached_table`; Ho et al., NIPS 2013). The server's condition
    is that of SSP with a soft buffer: i < V + s, else released at clock i−s+1. Updates
    are applied on arrival. Raises ValueError if the staleness is negative.
    """

    staleness: int  # s: iterations of others that a read may miss
    kind: Literal["ssptable"] = "ssptable"
    scale: Scale = Scale.MEAN

    def __post_init__(self) -> None:
        require_staleness(self.staleness)
        # A worker sees its own updates before they have a staleness.
        require(self.scale is not Scale.STALENESS, "scale", "mean or sum", self.scale)

    @property
    def apply(self) -> Apply:
        return Apply.ON_ARRIVAL

    def may_answer(self, pull: Pull, view: ShardView) -> Decision:
        lead = pull.iteration - view.clock
        if lead < self.staleness:
            return Decision(None, Reason.WITHIN_BOUND, lead, self.staleness)
        release = Buffer.SOFT.release_clock(pull, view, self.staleness)
        return Decision(release, Reason.BEYOND_BOUND, lead, self.staleness)

    def patience_s(self, view: ShardView) -> float:
        return everyone_arrived(view)
