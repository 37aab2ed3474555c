"""Many runs in virtual time in parallel, which are watched and can be ended early."""

from outpace.experiment.trials.one import Ended, Order, Point
from outpace.experiment.trials.pool import Pool

__all__ = ["Ended", "Order", "Point", "Pool"]
