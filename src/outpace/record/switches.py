"""The switches of an adaptive strategy, for the trace and the summary."""

from __future__ import annotations

from typing import Any

import msgspec

from outpace.record.trace import NONE, SWITCH
from outpace.support.units import Time, seconds
from outpace.sync.adaptive.interface import Family, Order, Setting, words
from outpace.sync.decision import Reason


class Switch(msgspec.Struct, array_like=True, frozen=True):
    """A change from one setting to another, with its reason.

    Attributes:
        time: ns since the start of the run.
        iteration: the iteration that a worker had ended when the rule decided.
        figures: see `sync.adaptive.interface.Order`.
        graces: of the settings before and after, see `sync.adaptive.interface.Setting`.
    """

    number: int  # of the switch in the run, from 0
    time: Time
    iteration: int
    family: Family
    before: int | None
    after: int | None
    reason: Reason
    figures: tuple[float, float]
    graces: tuple[Time, Time] = (0, 0)

    @staticmethod
    def of(number: int, time: Time, iteration: int, before: Setting, order: Order) -> Switch:
        to, why = order.to, (order.reason, order.figures)
        at, graces = (number, time, iteration), (before.grace, to.grace)
        return Switch(*at, to.family, before.value, to.value, *why, graces)

    def row(self) -> tuple[int, ...]:
        """Return the row of the trace."""
        before, after = (NONE if each is None else each for each in (self.before, self.after))
        when = self.iteration, self.time, self.time, *self.graces
        return (
            *(SWITCH, NONE, NONE, *when),
            *(self.number, NONE, NONE, NONE, self.reason, before, after),
        )

    def summary(self) -> dict[str, Any]:
        """Return the entry of summary.json."""
        before, after = self.graces
        return {
            "time_s": seconds(self.time),
            "iteration": self.iteration,
            "from": str(Setting(self.family, self.before, before)),
            "to": str(Setting(self.family, self.after, after)),
            "reason": words(self.reason, self.figures),
        }
