"""Bulk synchronous parallel: each worker waits for all workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from outpace.sync.decision import Decision
from outpace.sync.messages import Pull
from outpace.sync.policy import Apply, Buffer, Scale, ShardView, WirePolicy, bounded


@dataclass(frozen=True, slots=True)
class Bsp(WirePolicy):
    """Answers iteration i when all gradients of i have arrived: i < V (FluentPS, table III).

        outpace.sync.Bsp()  # sync: {kind: bsp}

    The earliest clock at which the bound holds is i+1, so both kinds of buffer give the same
    results.
    """

    kind: Literal["bsp"] = "bsp"
    buffer: Buffer = Buffer.LAZY
    apply: Apply = Apply.ON_ADVANCE
    scale: Scale = Scale.MEAN

    lockstep: ClassVar[bool] = True

    def may_answer(self, pull: Pull, view: ShardView) -> Decision:
        return bounded(pull, view, 0)
