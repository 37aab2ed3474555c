"""Run times of a run of Outpace, from its folder; or of whatever else has recorded some."""

from outpace.recording.run_folder import Of
from outpace.recording.source import Source, read_source

__all__ = ["Of", "Source", "read_source"]
