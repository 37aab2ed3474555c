"""The fitted model, and its conversion to tensors and settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from outpace.errors import ConfigError
from outpace.predict.deep_markov.filter import DeepMarkovFilter
from outpace.predict.deep_markov.network import DeepMarkovNetwork
from outpace.predict.deep_markov.scale import RunTimeScale
from outpace.predict.recorded.table import Nodes
from outpace.support.checks import require
from outpace.support.repeatable import left_as_they_were


@dataclass(frozen=True, slots=True)
class Shape:
    """The settings of a model.

    Args:
        workers: N.
        ordered: True: it models the sorted run times instead of each worker's own.
        lag: Length of the window in iterations.
        latent: Dimensions of the state.
        hidden: Width of the networks.
    """

    workers: int
    ordered: bool
    lag: int = 16
    latent: int = 16
    hidden: int = 64

    def __post_init__(self) -> None:
        for key in ("workers", "latent", "hidden"):
            require(getattr(self, key) >= 1, key, "at least 1", getattr(self, key))
        require(self.lag >= 2, "lag", "at least 2", self.lag)

    @property
    def shortest(self) -> int:
        """Length of the shortest window that it is trained on."""
        return self.lag // 2

    def network(self, seed: int) -> DeepMarkovNetwork:
        """Return a network with initial weights drawn from the seed."""
        with left_as_they_were():
            torch.set_default_dtype(torch.float32)
            torch.manual_seed(seed & (2**63 - 1))
            return DeepMarkovNetwork(self.workers, self.latent, self.hidden)


class DeepMarkov:
    """The fitted deep Markov model, made by `fit` or `from_parts`. Implements `Model`."""

    kind: ClassVar[str] = "deep-markov"

    def __init__(self, shape: Shape, scale: RunTimeScale, network: DeepMarkovNetwork) -> None:
        self.shape = shape
        self._scale = scale
        self._network = network.eval().requires_grad_(False)

    @property
    def needs(self) -> int:
        return self.shape.shortest

    def follow(self, node: Nodes, seed: int) -> DeepMarkovFilter:
        """Return a filter. Raises ConfigError for another number of workers than in the fit."""
        if len(node) != self.shape.workers:
            raise ConfigError(
                f"this deep Markov model was fitted to {self.shape.workers} workers, and the run "
                f"has {len(node)}: fit it to run times of {len(node)} workers, or use a model "
                "of kind pooled, which serves any number"
            )
        generator = torch.Generator().manual_seed(seed & (2**63 - 1))
        shape = self.shape
        return DeepMarkovFilter(self._network, self._scale, shape.lag, shape.ordered, generator)

    def tensors(self) -> Mapping[str, Tensor]:
        scale = {"scale.centre": self._scale.centre, "scale.width": self._scale.width}
        return {**self._network.state_dict(), **scale}

    def settings(self) -> dict[str, Any]:
        return asdict(self.shape)

    @classmethod
    def from_parts(cls, tensors: Mapping[str, Tensor], settings: Mapping[str, Any]) -> DeepMarkov:
        shape = Shape(**settings)
        learned = dict(tensors)
        scale = RunTimeScale(learned.pop("scale.centre"), learned.pop("scale.width"))
        network = shape.network(seed=0)
        network.load_state_dict(learned)
        centres = tuple(scale.centre.shape)
        require(centres == (shape.workers,), "scale.centre", "one for each worker", centres)
        return cls(shape, scale, network)
