"""Find the slow workers, servers and links of a run, and the gain of their repair."""

from outpace.experiment.explaining.explanation import explain

__all__ = ["explain"]
