"""Calibration: from the folders of recorded runs to a cluster file and a page about it."""

from outpace.experiment.calibrating.calibration import Calibration, write_calibration
from outpace.experiment.calibrating.run_calibration import calibrate

__all__ = ["Calibration", "calibrate", "write_calibration"]
