"""Asynchronous parallel: no worker waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outpace.sync.decision import Decision, Reason
from outpace.sync.messages import Pull
from outpace.sync.policy import Apply, Scale, ShardView, WirePolicy


@dataclass(frozen=True, slots=True)
class Asp(WirePolicy):
    """Answers every pull at once (FluentPS, table III).

        outpace.sync.Asp()  # sync: {kind: asp}

    So nothing bounds how old a gradient is when it changes the parameters.
    """

    kind: Literal["asp"] = "asp"
    apply: Apply = Apply.ON_ARRIVAL
    scale: Scale = Scale.MEAN

    def may_answer(self, pull: Pull, view: ShardView) -> Decision:
        return Decision(None, Reason.UNBOUNDED, pull.iteration - view.clock)
