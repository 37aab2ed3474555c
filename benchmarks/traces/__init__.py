"""Profiled DDP training: calibrated on its traces, and predicted."""
