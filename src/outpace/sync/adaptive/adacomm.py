"""AdaComm: workers average more often as the loss falls.

Wang and Joshi, Adaptive communication strategies to achieve the best error-runtime trade-off in
local-update SGD, SysML 2019. A long period spares averages at the start, a short one lowers the
error at the end. At the end of each interval of T₀ seconds the period becomes

    τ = ⌈√(F / F₀) τ₀⌉,

with the training loss F now and F₀ at the start; if that is not below the period before, γ times
the period before. The paper's factor for a learning rate that decays is left out: at a constant
rate it is 1.
"""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import msgspec

from outpace.sync.adaptive.interface import Family, Order, Setting
from outpace.sync.decision import Reason


class Averaged(NamedTuple):
    """Time and loss at an average. All workers get the same values."""

    now_s: float  # when all had joined, in seconds since the start of the run
    loss: float | None  # mean over the steps since the average before; None: there is none


class SavedPeriod(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of the rule in a checkpoint.

    Attributes:
        value: the period in force.
        first: F₀; None: it is not known yet.
        due_s: when the next decision is due, in seconds since the start of the run.
        switches: of the run until then.
    """

    value: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
    first: float | None
    due_s: Annotated[float, msgspec.Meta(ge=0)]
    switches: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.due_s) and (self.first is None or math.isfinite(self.first))


class AdaComm:
    """Orders the steps from one average to the next.

    Args:
        every: τ₀.
        interval_s: T₀.
        factor: γ, above 0 and below 1.
    """

    def __init__(self, every: int, interval_s: float, factor: float) -> None:
        self.setting = Setting(Family.PERIOD, every)
        self._every, self._interval_s, self._factor = every, interval_s, factor
        self._first: float | None = None  # F₀
        self._due_s = interval_s

    def observe(self, seen: Averaged) -> Order | None:
        before = self.setting.value
        assert before is not None
        if self._first is None or seen.loss is None or seen.now_s < self._due_s:
            self._first = seen.loss if self._first is None else self._first
            return None
        self._due_s = (math.floor(seen.now_s / self._interval_s) + 1) * self._interval_s
        share = min(1.0, max(0.0, seen.loss) / self._first) if self._first > 0 else 1.0
        after, reason = max(1, math.ceil(math.sqrt(share) * self._every)), Reason.LOSS_FELL
        if after >= before:
            after, reason = max(1, math.floor(self._factor * before)), Reason.LOSS_STAYS
        if after == before:
            return None
        self.setting = Setting(Family.PERIOD, after)
        return Order(self.setting, reason, (self._first, seen.loss))

    def state(self, switches: int) -> SavedPeriod:
        """Return all that another rule with the same options needs to go on.

        switches: number of the run's until now.
        """
        assert self.setting.value is not None
        return SavedPeriod(self.setting.value, self._first, self._due_s, switches)

    def restore(self, state: SavedPeriod) -> None:
        """Go on from a state; only before the first observation."""
        self.setting = Setting(Family.PERIOD, state.value)
        self._first, self._due_s = state.first, state.due_s
