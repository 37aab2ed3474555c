"""Runs on a Ray cluster beside those of the local launcher: `python -m benchmarks.cluster`."""
