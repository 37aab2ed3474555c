"""Calibration: from the folders of recorded runs to a cluster file and a page about it."""

from outpace.experiment.calibrating.calibration import Calibration, calibrate

__all__ = ["Calibration", "calibrate"]
