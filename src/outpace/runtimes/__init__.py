"""Run times of the workers of a cluster, as recorded."""

from outpace.runtimes.reading import read_run_times
from outpace.runtimes.table import RunTimes

__all__ = ["RunTimes", "read_run_times"]
