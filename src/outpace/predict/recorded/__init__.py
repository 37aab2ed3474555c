"""Recorded run times of the workers of a cluster: a table, its files, its statistics."""

from outpace.predict.recorded.files import read, read_nodes, read_run_times, write
from outpace.predict.recorded.table import RunTimes, too_short

__all__ = ["RunTimes", "read", "read_nodes", "read_run_times", "too_short", "write"]
