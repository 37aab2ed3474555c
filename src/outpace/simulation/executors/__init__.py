"""Real gradients for virtual time: computed late, ahead, elsewhere, together, or never."""

from outpace.simulation.executors.gradients import Gradients
from outpace.simulation.executors.job import EvaluationJob

__all__ = ["EvaluationJob", "Gradients"]
