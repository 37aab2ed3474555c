"""The pooled run-time model, the filter that follows a run with it, and its predictions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from outpace.predict.normal import draw_above
from outpace.predict.pooled.law import Law, likely, log_parts, plausible, posterior
from outpace.predict.pooled.network import PooledNetwork
from outpace.predict.pooled.tracks import REAL, Levels, NodeLayout, advance, begin
from outpace.predict.recorded import Mask, Nodes, Seconds
from outpace.support.repeatable import left_as_they_were

_SCALES: Final = ("noise", "delay", "common")


@dataclass(frozen=True, slots=True, eq=False)
class Pooled:
    """The fitted pooled model. Implements `Model`.

    All workers, nodes and clusters share its weights, so it can predict other clusters than it was
    fitted to, and workers that have never been observed.
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
        self._tracks, features = advance(self._tracks, times, mask, self._network.noise)
        now = Levels(*(part[None, None] for part in features))
        states = self._network(now, layout.present[None], self._state)
        self._state = Levels(*(part[0] for part in states))

    @torch.no_grad()
    def predict(self) -> Forecast:
        state = Levels(*(part[0] for part in self._state))
        law = plausible(*self._network.law(state, self._tracks), self._layout.present)
        nothing = np.full(len(self._node), np.nan)
        return Forecast(law, float(self._tracks.reference), self._layout, self._generator, nothing)


class _Weights(NamedTuple):
    """A law and the probabilities of its parts.

    These are the probabilities of the Q shifts, shape (Q,), of the regimes, (J, Q, K), and of the
    delays, (J, W, Q, K). The axis of the shifts, and the axis of the regimes of a delay, have
    length 1 if the shift or the regime makes no difference.
    """

    law: Law
    shift: Tensor
    regime: Tensor
    delay: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Forecast:
    """The law of an iteration, given which workers have finished. Implements `Prediction`.

    It is exact: the weights of shifts, regimes and delays follow from Bayes' rule, and workers
    that have not finished are drawn from the normal law above the time that has passed.

    Args:
        law: the law, without leading dimensions.
        reference: the log time that the law is relative to.
        layout: places of the workers; random numbers are assigned to the places.
        generator: source of all draws.
        arrived: shape (N,), NaN for workers that have not finished after `elapsed_s`.
        elapsed_s: seconds since the iteration began.
    """

    law: Law
    reference: float
    layout: NodeLayout
    generator: torch.Generator
    arrived: Seconds
    elapsed_s: float = 0.0

    def given(self, arrived: Seconds, elapsed_s: float) -> Forecast:
        return replace(self, arrived=arrived, elapsed_s=elapsed_s)

    def sample(self, count: int) -> Seconds:
        drawn = np.tile(self.arrived, (count, 1))
        waiting = torch.from_numpy(np.isnan(self.arrived))
        workers = self.layout.workers
        workers = workers[waiting[workers]]
        if len(workers):
            place = self.layout.place[workers]
            times = self._draw(count, place).exp_().T.numpy()
            drawn[:, workers.numpy()] = np.maximum(times, self.elapsed_s)
        return drawn

    def _draw(self, count: int, place: Tensor) -> Tensor:
        """Draw log times of the workers at these places, shape (n, count)."""
        law, shift, regime, delay = self._weights()
        regimes = regime.shape[-1]

        def uniform(*shape: int) -> Tensor:
            return torch.rand(shape, generator=self.generator, dtype=REAL)

        # The draws are stratified: one shift from each of `count` equal parts, so fewer draws
        # suffice.
        even = (torch.arange(count) + uniform(count)) / count
        which = torch.searchsorted(shift.cumsum(0), even).clamp_(max=len(shift) - 1)
        steps = regime.cumsum(-1)[..., :-1]
        if steps.shape[1] > 1:
            steps = steps.index_select(1, which)
        turn = (uniform(len(regime), count, 1) > steps).sum(-1)  # (J, count)

        # From here on shapes are (n, count).
        node = place // self.layout.width
        mine = turn[node]
        chances = delay.flatten(0, 1)[place].flatten(1)
        cell = which * regimes + mine if delay.shape[2] > 1 else torch.zeros_like(mine)
        late = uniform(*mine.shape) < chances.gather(1, cell)
        middle = (law.level[node] + law.offset.flatten()[place, None]).gather(1, mine)
        middle += law.shift[which] + late * law.delay.flatten()[place, None]
        usual = law.spread.flatten(0, 1)[place].gather(1, mine)
        spread = torch.where(late, law.delay_spread.flatten()[place, None], usual)
        now = math.log(self.elapsed_s) if self.elapsed_s > 0.0 else -math.inf
        low = (now - self.reference - middle).div_(spread)
        z = draw_above(low, self.generator)
        return z.mul_(spread).add_(middle).add_(self.reference)

    def _weights(self) -> _Weights:
        if self.elapsed_s <= 0.0:
            return _Weights(
                self.law,
                self.law.log_shift.exp(),
                self.law.log_regime.exp()[:, None, :],
                self.law.straggle.sigmoid()[..., None, None],
            )
        layout, present = self.layout, self.layout.present
        is_waiting = np.isnan(self.arrived)
        times = layout.spread(torch.from_numpy(np.where(is_waiting, self.elapsed_s, self.arrived)))
        away = torch.where(present, times.log() - self.reference, 0.0)
        waiting = layout.spread(torch.from_numpy(is_waiting))
        law = likely(self.law, away, waiting, present)
        usual, delayed = log_parts(law, away, waiting)
        both = torch.logaddexp(usual, delayed).mul_(present[..., None, None])
        shift, regime = posterior(law, both)
        return _Weights(law, shift.exp(), regime.exp(), (delayed - both).exp_())
