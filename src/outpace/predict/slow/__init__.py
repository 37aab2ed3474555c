"""Finds units that are slower than the others, while a run is running or afterwards.

A unit is a worker, a server or a link. `Detector` takes one row after the other: the run times of
all units in one iteration. `Rows` collects the times of workers that are at different iterations.
"""

from outpace.predict.slow.detector import FAMILY_ERROR, LEAST_FACTOR, Detector, detected
from outpace.predict.slow.fast import Fast, fast
from outpace.predict.slow.pauses import LEAST_PAUSE, sudden
from outpace.predict.slow.period import SlowPeriod, pattern_of
from outpace.predict.slow.rows import Rows

__all__ = [
    "FAMILY_ERROR",
    "LEAST_FACTOR",
    "LEAST_PAUSE",
    "Detector",
    "Fast",
    "Rows",
    "SlowPeriod",
    "detected",
    "fast",
    "pattern_of",
    "sudden",
]
