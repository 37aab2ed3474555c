"""Calibration: makes a cluster file from recorded runs or profiler traces."""

from outpace.experiment.calibrating.calibration import calibrate, calibrate_traces
from outpace.experiment.calibrating.cluster_file import Calibration, write_calibration

__all__ = ["Calibration", "calibrate", "calibrate_traces", "write_calibration"]
