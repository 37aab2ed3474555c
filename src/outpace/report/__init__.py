"""Reports about one run or several: one HTML file, made from their folders alone."""

from outpace.report.frame import is_report
from outpace.report.page import write_report
from outpace.report.read.folders import distinct, runs_in

__all__ = ["distinct", "is_report", "runs_in", "write_report"]
