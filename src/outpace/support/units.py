"""Time is an integer number of nanoseconds since the start of the run.

Integers, because sums of floats depend on their order, and two events that should happen together
would not. Seconds (float) appear only where a person writes or reads them.
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
