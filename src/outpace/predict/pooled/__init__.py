"""The pooled hierarchical model: no weights of its own for any worker."""

from outpace.predict.pooled.model import Pooled
from outpace.predict.pooled.training import fit

__all__ = ["Pooled", "fit"]
