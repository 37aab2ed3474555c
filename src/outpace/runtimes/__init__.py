"""Run times of the workers of a cluster, as recorded: a table, its files, what it shows."""

from outpace.runtimes.reading import read, read_nodes, read_run_times
from outpace.runtimes.table import RunTimes
from outpace.runtimes.writing import write

__all__ = ["RunTimes", "read", "read_nodes", "read_run_times", "write"]
