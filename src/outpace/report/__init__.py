"""Reports: one HTML file over one run or several, made from their folders alone."""

from outpace.report.page import write_report

__all__ = ["write_report"]
