"""Draws from the law of one iteration, also given which workers have finished."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from outpace.predict.normal import normal_above
from outpace.predict.pooled.common import likely
from outpace.predict.pooled.law import Law, log_parts, posterior
from outpace.predict.pooled.layout import NodeLayout
from outpace.predict.pooled.tracks import REAL
from outpace.predict.recorded.table import Seconds

_LEAST: Final = 2.0**-60  # uniform draws are from the open interval (0, 1)


class _Weights(NamedTuple):
    """A law and the probabilities of its parts.

    Of the Q shifts, shape (Q,), of regimes, (J, Q, K), and of delays, (J, W, Q, K). The axis of the
    shifts, and that of a delay's regimes, have length 1 where these make no difference.
    """

    law: Law
    shift: Tensor
    regime: Tensor
    delay: Tensor


@dataclass(frozen=True, slots=True)
class Forecast:
    """The law of an iteration. Implements `Prediction`.

    Args:
        law: Without leading dimensions.
        reference: The log time that it is relative to.
        layout: Random numbers go to workers by their places in it.
        generator: Source of all draws.
    """

    law: Law
    reference: float
    layout: NodeLayout
    generator: torch.Generator

    def sample(self, count: int) -> Seconds:
        drawn = np.empty((count, len(self.layout.place)))
        workers = self.layout.workers
        place = self.layout.place[workers]
        drawn[:, workers.numpy()] = self.draw(count, self.weights(), place, None)
        return drawn

    def given(self, arrived: Seconds, elapsed_s: float) -> Given:
        return Given(self, arrived, elapsed_s)

    def weights(self) -> _Weights:
        """Return the prior probabilities."""
        law = self.law
        return _Weights(
            law,
            law.log_shift.exp(),
            law.log_regime.exp()[:, None, :],
            law.straggle.sigmoid()[..., None, None],
        )

    def draw(self, count: int, weights: _Weights, place: Tensor, above: float | None) -> Seconds:
        """Draw times of the workers at these places, shape (count, n), all greater than `above`."""
        law, shift, regime, delay = weights
        generator = self.generator
        # Stratified: one shift from each of `count` equal parts, so fewer draws suffice.
        even = (torch.arange(count) + torch.rand(count, generator=generator, dtype=REAL)) / count
        which = torch.searchsorted(shift.cumsum(0), even).clamp_(max=len(shift) - 1)
        steps = regime.cumsum(-1)[..., :-1]
        if steps.shape[1] > 1:
            steps = steps.index_select(1, which)
        chance = torch.rand(len(regime), count, 1, generator=generator, dtype=REAL)
        turn = (chance > steps).sum(-1)  # (J, count)

        # From here on shapes are (n, count): of worker, and of worker and regime, by number.
        node = place // self.layout.width
        mine = turn.index_select(0, node)
        chances, regimes = delay.flatten(0, 1).index_select(0, place), law.level.shape[-1]
        own = torch.arange(len(place))[:, None]
        cell = own * chances[0].numel()
        if chances.shape[1] > 1:
            cell = cell + which * regimes + mine
        late = torch.rand(mine.shape, generator=generator, dtype=REAL) < _at(chances, cell)
        cell = own * regimes + mine
        middle = _at(law.level[node] + law.offset.reshape(-1)[place, None], cell)
        middle += law.shift[which]
        middle += late * law.delay.reshape(-1)[place, None]
        spread = torch.where(
            late,
            law.delay_spread.reshape(-1)[place, None],
            _at(law.spread.reshape(-1, regimes)[place], cell),
        )
        if above is None:
            z = torch.randn(cell.shape, generator=generator, dtype=REAL)
        else:
            low = (math.log(above) - self.reference - middle).div_(spread)
            uniform = torch.rand(low.shape, generator=generator, dtype=REAL)
            z = normal_above(low, uniform.clamp_(min=_LEAST))
        times = z.mul_(spread).add_(middle).add_(self.reference).exp_().T
        drawn = times.numpy()
        return drawn if above is None else np.maximum(drawn, above)


@dataclass(frozen=True, eq=False)
class Given:
    """A forecast given which workers have finished by some time. Implements `Prediction`.

    It is exact: the weights of shifts, regimes and delays follow from Bayes' rule, and workers
    that have not finished are drawn from the normal law above the time that has passed.

    Args:
        arrived: Shape (N,), NaN for workers that have not finished after `elapsed_s`.
    """

    forecast: Forecast
    arrived: Seconds
    elapsed_s: float

    def given(self, arrived: Seconds, elapsed_s: float) -> Given:
        return Given(self.forecast, arrived, elapsed_s)

    def sample(self, count: int) -> Seconds:
        drawn = np.tile(self.arrived, (count, 1))
        waiting = np.isnan(self.arrived)
        if waiting.any():
            above = self.elapsed_s if self.elapsed_s > 0.0 else None
            workers = self.forecast.layout.workers
            workers = workers[torch.from_numpy(waiting)[workers]]
            place = self.forecast.layout.place[workers]
            drawn[:, workers.numpy()] = self.forecast.draw(count, self._weights, place, above)
        return drawn

    @cached_property
    def _weights(self) -> _Weights:
        forecast = self.forecast
        layout, present = forecast.layout, forecast.layout.present
        if self.elapsed_s <= 0.0:
            return forecast.weights()
        is_waiting = np.isnan(self.arrived)
        times = layout.spread(torch.from_numpy(np.where(is_waiting, self.elapsed_s, self.arrived)))
        away = torch.where(present, times.log() - forecast.reference, 0.0)
        waiting = layout.spread(torch.from_numpy(is_waiting))
        law = likely(forecast.law, away, waiting, present)
        usual, delayed = log_parts(law, away, waiting)
        both = torch.logaddexp(usual, delayed).mul_(present[..., None, None])
        shift, regime = posterior(law, both)
        return _Weights(law, shift.exp(), regime.exp(), (delayed - both).exp_())


def _at(table: Tensor, cell: Tensor) -> Tensor:
    """Look entries up by their numbers, ten times as fast as by indexing."""
    return table.reshape(-1).index_select(0, cell.reshape(-1)).view(cell.shape)
