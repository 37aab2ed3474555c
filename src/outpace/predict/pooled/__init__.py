"""The pooled hierarchical model of run times: all workers share its weights."""

from outpace.predict.pooled.model import Pooled
from outpace.predict.pooled.training import fit

__all__ = ["Pooled", "fit"]
