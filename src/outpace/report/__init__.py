"""Reports: one HTML file over one run or several, made from their folders alone."""

from outpace.report.folders import distinct, runs_in
from outpace.report.page import is_report, write_report

__all__ = ["distinct", "is_report", "runs_in", "write_report"]
