"""Real gradients for virtual time: computed late, ahead, elsewhere, together, or never."""

from outpace.simulation.executors.gradients import Gradients

__all__ = ["Gradients"]
