"""The cost of failures in real runs: `python -m benchmarks.failures`."""
