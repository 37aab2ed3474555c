"""Failures of a simulated cluster: their times, how the run continues, and their costs."""
