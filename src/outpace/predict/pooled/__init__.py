"""The pooled hierarchical model of run times: all workers share its weights."""

from outpace.predict.pooled.fitting import fit
from outpace.predict.pooled.model import Pooled

__all__ = ["Pooled", "fit"]
