"""How the service times of a server depend on the bytes of its parameters."""

from __future__ import annotations

from dataclasses import dataclass

from outpace.cluster.laws import ServiceLaw, ShiftedExponential
from outpace.support.checks import not_negative, require


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSize:
    """The size that service times are for. What they take beyond `fixed_s` grows with the size.

    Args:
        size_bytes: Bytes of the parameters of a server that takes the times as they are.
        fixed_s: Seconds of each push and pull that are the same whatever the size. If the mean is
            shorter, it does not grow. An update has no such part.
    """

    size_bytes: int
    fixed_s: float = 0.0

    def __post_init__(self) -> None:
        require(self.size_bytes > 0, "size_bytes", "at least 1", self.size_bytes)
        require(not_negative(self.fixed_s), "fixed_s", "a number from 0 to 1e9", self.fixed_s)

    def factor(self, law: ServiceLaw, size_bytes: int, *, has_fixed_part: bool) -> float:
        """Return how many times as long as the law a server with so many bytes takes."""
        mean_s = law.mean_s + (law.shift_s if isinstance(law, ShiftedExponential) else 0.0)
        fixed_s = min(self.fixed_s, mean_s) if has_fixed_part else 0.0
        return (fixed_s + (mean_s - fixed_s) * size_bytes / self.size_bytes) / mean_s
