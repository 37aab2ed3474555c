"""Predicted against real: the same runs in virtual time and on processes."""
