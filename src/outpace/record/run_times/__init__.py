"""Run times from the folder of a run, or from a file of recorded run times."""

from outpace.record.run_times.run_folder import Of
from outpace.record.run_times.source import Source, read_source

__all__ = ["Of", "Source", "read_source"]
