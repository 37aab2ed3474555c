"""The page about recorded run times."""

from outpace.report.run_times.facts import Facts, facts_of
from outpace.report.run_times.page import write_run_times

__all__ = ["Facts", "facts_of", "write_run_times"]
