"""What slows a run, and what its repair would gain."""

from outpace.experiment.explaining.explanation import explain

__all__ = ["explain"]
