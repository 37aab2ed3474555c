"""Time as an integer number of nanoseconds since the start of the run.

Sums of floats depend on their order, so with floats two events that should be simultaneous would
not be. Seconds (float) appear only where a person writes or reads them.
"""

from typing import TypeAlias

Time: TypeAlias = int  # nanoseconds

SECOND: Time = 1_000_000_000


def nanoseconds(seconds: float) -> Time:
    """Return the nearest whole number of nanoseconds."""
    return round(seconds * SECOND)


def seconds(time: Time) -> float:
    """Return a time in seconds."""
    return time / SECOND
