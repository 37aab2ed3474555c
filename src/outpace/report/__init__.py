"""Reports about one run or several: one HTML file, made from their folders alone."""

from outpace.report.frame import is_report
from outpace.report.page import write_report
from outpace.report.read.folders import distinct, runs_in
from outpace.report.studies import is_study, write_study_page

__all__ = ["distinct", "is_report", "is_study", "runs_in", "write_report", "write_study_page"]
