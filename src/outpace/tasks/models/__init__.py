"""Models of the literature for small pictures, by name."""

from outpace.tasks.models.registry import MODELS, layer_sizes, make_model, require_model

__all__ = ["MODELS", "layer_sizes", "make_model", "require_model"]
