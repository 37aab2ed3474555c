"""Sync-Switch: BSP at the start of the training, then ASP.

Li, Mangoubi, Xu and Guo, Sync-Switch: hybrid parameter synchronization for distributed deep
learning, ICDCS 2021. Gradients are synchronous at the start, when they matter most; after that no
worker waits. The paper finds the share of synchronous training by a search over whole runs; here
the user gives it. Its other parts, which adapt hyperparameters at the switch and treat workers that
are slow for a while, are left out: gradients keep their weight.
"""

from __future__ import annotations

from outpace.sync.adaptive.interface import Family, Observation, Order, Setting
from outpace.sync.decision import Reason

BSP, ASP = Setting(Family.BOUND, 0), Setting(Family.BOUND, None)


class SyncSwitch:
    """Orders ASP once every worker has done so many iterations.

    Args:
        after: number of synchronous iterations, at least 1.
    """

    def __init__(self, after: int) -> None:
        self.setting = BSP
        self._after = after

    def observe(self, seen: Observation) -> Order | None:
        # Under BSP a worker has the answers of an iteration when all have pushed it.
        if self.setting == ASP or seen.iteration < self._after - 1:
            return None
        self.setting = ASP
        return Order(ASP, Reason.SHARE_DONE, (0.0, float(self._after)))
