"""A rule with the same wait in every iteration: for all workers, or for a share of them."""

from __future__ import annotations

from dataclasses import dataclass

from outpace.predict.interface import Wait
from outpace.predict.recorded.table import Mask, Seconds
from outpace.support.checks import require


@dataclass(frozen=True, slots=True)
class Fixed:
    """Returns the same `Wait` in every iteration; `Fixed(Wait())` waits for all workers."""

    wait: Wait

    def begin(self) -> Wait:
        return self.wait

    def review(self, arrived: Seconds, elapsed_s: float) -> Wait:
        return self.wait

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        pass


def share_of(workers: int, share: float) -> Fixed:
    """Return a rule that waits for this share of the workers, rounded, at least for one."""
    require(0 < share <= 1, "share", "above 0 and at most 1", share)
    return Fixed(Wait(count=max(1, round(share * workers))))
