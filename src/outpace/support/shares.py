"""Shares of a number of machines, in per cent."""

from __future__ import annotations

import math
from fractions import Fraction


def share_of(count: int, percent: float) -> int:
    """Return a share of `count`, rounded up, exact for a decimal `percent`."""
    return math.ceil(Fraction(repr(float(percent))) * count / 100)
