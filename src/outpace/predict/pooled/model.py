"""The pooled hierarchical run-time model, and the filter that follows a run with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

import numpy as np
import torch
from torch import Tensor

from outpace.predict.pooled.common import plausible
from outpace.predict.pooled.layout import NodeLayout
from outpace.predict.pooled.network import PooledNetwork
from outpace.predict.pooled.prediction import Forecast
from outpace.predict.pooled.tracks import Levels, advance, begin, reference
from outpace.predict.recorded.table import Mask, Nodes, Seconds
from outpace.support.repeatable import left_as_they_were

_SCALES: Final = ("noise", "delay", "common")


@dataclass(frozen=True, slots=True, eq=False)
class Pooled:
    """The fitted pooled model. Implements `Model`.

    All workers, nodes and clusters share its weights, so it serves other clusters than it was
    fitted to and workers that have never been observed.
    """

    network: PooledNetwork

    kind: ClassVar[str] = "pooled"
    needs: ClassVar[int] = 1

    def follow(self, node: Nodes, seed: int) -> Follower:
        return Follower(self.network, np.asarray(node), seed)

    def tensors(self) -> Mapping[str, Tensor]:
        return {name: tensor.detach().clone() for name, tensor in self.network.named_parameters()}

    def settings(self) -> dict[str, Any]:
        return {name: getattr(self.network, name) for name in _SCALES}

    @classmethod
    def from_parts(cls, tensors: Mapping[str, Tensor], settings: Mapping[str, Any]) -> Self:
        with left_as_they_were():  # initial weights are drawn, and replaced
            network = PooledNetwork(*(settings[name] for name in _SCALES))
        network.load_state_dict(dict(tensors))
        return cls(network.requires_grad_(False))


class Follower:
    """Follows one run with a pooled model. Implements `Filter`."""

    def __init__(self, network: PooledNetwork, node: Nodes, seed: int) -> None:
        self._network, self._node, self._begun = network, node, False
        self._layout = layout = NodeLayout.of(node)
        self._state: Levels = network.begin(1, layout.nodes, layout.width)
        self._tracks = begin((), layout.nodes, layout.width)
        self._generator = torch.Generator().manual_seed(seed)

    @torch.no_grad()
    def observe(self, seconds: Seconds, censored: Mask) -> None:
        if not self._begun:
            self._begun, self._layout = True, NodeLayout.of(self._node, seconds)
        layout = self._layout
        times = layout.spread(torch.from_numpy(np.asarray(seconds, np.float64))).log()
        mask = layout.spread(torch.from_numpy(np.asarray(censored, bool)))
        self._tracks, features = advance(
            self._tracks, times, mask, reference(times.flatten()), self._network.noise
        )
        now = Levels(*(part[None, None] for part in features))
        states = self._network(now, self._layout.present[None], self._state)
        self._state = Levels(*(part[0] for part in states))

    @torch.no_grad()
    def predict(self) -> Forecast:
        state = Levels(*(part[0] for part in self._state))
        law = plausible(*self._network.law(state, self._tracks), self._layout.present)
        return Forecast(law, float(self._tracks.reference), self._layout, self._generator)
