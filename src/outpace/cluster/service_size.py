"""How the service times of a server depend on the bytes of its parameters."""

from __future__ import annotations

from dataclasses import dataclass

from outpace.cluster.laws import ServiceLaw, ShiftedExponential
from outpace.support.checks import not_negative, require


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSize:
    """The size of a server that service times are for, and how they change with the size.

    The change is limited, so that no time of a small server is negative.

    Args:
        size_bytes: Bytes of the parameters of a server to which the times apply unchanged.
        message_s_per_byte: Seconds that a push and a pull take longer for each additional byte.
        update_s_per_byte: The same for an update, which reads and writes every parameter. It also
            holds for pushes if no `update_time` is given, since they contain the update then.
    """

    size_bytes: int
    message_s_per_byte: float
    update_s_per_byte: float

    def __post_init__(self) -> None:
        require(self.size_bytes > 0, "size_bytes", "at least 1", self.size_bytes)
        for name in ("message_s_per_byte", "update_s_per_byte"):
            value = getattr(self, name)
            require(not_negative(value), name, "a number from 0 to 1e9", value)

    def factor(self, law: ServiceLaw, size_bytes: int, *, has_update: bool) -> float:
        """Return the factor of the law's times on a server with `size_bytes`."""
        mean_s = law.mean_s + (law.shift_s if isinstance(law, ShiftedExponential) else 0.0)
        slope = self.update_s_per_byte if has_update else self.message_s_per_byte
        slope = min(slope, mean_s / self.size_bytes)
        return 1 + slope * (size_bytes - self.size_bytes) / mean_s
