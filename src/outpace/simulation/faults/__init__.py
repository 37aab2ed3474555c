"""Failures of a simulated cluster: what happens, how the run continues, and what it costs."""
