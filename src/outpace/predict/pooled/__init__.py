"""The pooled hierarchical model of run times: all workers share the model's weights."""

from outpace.predict.pooled.fitting import fit
from outpace.predict.pooled.model import Pooled

__all__ = ["Pooled", "fit"]
