"""Run times of a run of Outpace, from its folder; or of whatever else has recorded some."""

from outpace.record.run_times.run_folder import Of
from outpace.record.run_times.source import Source, read_source

__all__ = ["Of", "Source", "read_source"]
