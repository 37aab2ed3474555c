"""Explains which worker or link slows a run, since when, and how many seconds it costs."""

from outpace.report.explaining.causes import explained
from outpace.report.explaining.explanation import Cause, Explanation, Faster, Gain, Period

__all__ = ["Cause", "Explanation", "Faster", "Gain", "Period", "explained"]
