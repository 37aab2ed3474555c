"""Recorded run times of the workers of a cluster: a table, its files, its statistics."""

from outpace.predict.recorded.reading import read, read_nodes, read_run_times
from outpace.predict.recorded.table import RunTimes
from outpace.predict.recorded.writing import write

__all__ = ["RunTimes", "read", "read_nodes", "read_run_times", "write"]
