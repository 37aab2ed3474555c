"""The page about a sweep, made from `sweep.json`."""

from outpace.report.sweeps.page import write_sweep_page

__all__ = ["write_sweep_page"]
