"""What failures cost real runs: `python -m benchmarks.failures`."""
