"""Failures of a simulated cluster: what happens, how the run goes on, and what it costs."""
