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
from typing import NamedTuple

from outpace.sync.adaptive.interface import Family, Order, Setting
from outpace.sync.decision import Reason


class Averaged(NamedTuple):
    """What every worker knows after an average. It is the same for all workers."""

    now_s: float  # when all had joined, in seconds since the start of the run
    loss: float | None  # mean over the steps since the average before; None: there is none


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
        share = max(0.0, seen.loss) / self._first if self._first > 0 else 1.0
        after, reason = max(1, math.ceil(math.sqrt(share) * self._every)), Reason.LOSS_FELL
        if after >= before:
            after, reason = max(1, math.floor(self._factor * before)), Reason.LOSS_STAYS
        if after == before:
            return None
        self.setting = Setting(Family.PERIOD, after)
        return Order(self.setting, reason, (self._first, seen.loss))
