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
from outpace.predict.pooled.law import Law, log_parts, posterior
from outpace.predict.pooled.layout import NodeLayout
from outpace.predict.recorded.table import Seconds

_NEAR: Final = 4.0  # up to here single precision suffices for draws from a tail


class _Weights(NamedTuple):
    """Probabilities of the shifts (Q,), regimes (J, Q, K) and delays (n, Q, K) of n workers."""

    shift: Tensor
    regime: Tensor
    delay: Tensor


@dataclass(frozen=True, slots=True)
class Forecast:
    """The law of an iteration. Implements `Prediction`.

    Args:
        law: Without leading dimensions.
        reference: The log time that it is relative to.
        generator: Source of all draws.
    """

    law: Law
    reference: float
    layout: NodeLayout
    generator: torch.Generator

    def sample(self, count: int) -> Seconds:
        return self.draw(count, self.weights(), self.layout.place, None)

    def given(self, arrived: Seconds, elapsed_s: float) -> Given:
        return Given(self, arrived, elapsed_s)

    def weights(self) -> _Weights:
        """Return the prior probabilities."""
        law, shifts = self.law, len(self.law.shift)
        delay = law.straggle.sigmoid().reshape(-1)[self.layout.place]
        return _Weights(
            law.log_shift.exp(),
            law.log_regime.exp()[:, None, :].expand(-1, shifts, -1),
            delay[:, None, None].expand(-1, shifts, law.level.shape[-1]),
        )

    def draw(self, count: int, weights: _Weights, place: Tensor, above: float | None) -> Seconds:
        """Draw times of the workers at these places, shape (count, n), all greater than `above`."""
        shift, regime, delay = weights
        shifts, regimes = regime.shape[1:]
        generator = self.generator
        # Stratified: one shift from each of `count` equal parts, so fewer draws suffice.
        even = (torch.arange(count) + torch.rand(count, generator=generator)) / count
        which = torch.searchsorted(shift.cumsum(0), even).clamp_(max=shifts - 1)
        steps = regime.cumsum(-1)[..., :-1].index_select(1, which)
        chance = torch.rand(len(regime), count, 1, generator=generator)
        turn = (chance > steps).sum(-1).add_(which * regimes)  # (J, count)

        # Numbers of cells in tables of each worker, shift and regime: (n, count).
        cell = turn.index_select(0, place // self.layout.width)
        cell += torch.arange(len(place))[:, None] * (shifts * regimes)
        uniform = torch.rand(cell.shape, generator=generator)
        cell = cell * 2 + (uniform < _at(delay, cell))
        middle, spread = (_at(table, cell) for table in self._tables(place))
        if above is None:
            z = torch.randn(cell.shape, generator=generator)
        else:
            z = self._above((math.log(above) - self.reference - middle).div_(spread))
        times = z.mul_(spread).add_(middle).double().add_(self.reference).exp_().T
        drawn = times.numpy()
        return drawn if above is None else np.maximum(drawn, above)

    def _tables(self, place: Tensor) -> tuple[Tensor, Tensor]:
        """Return means and spreads (n, Q, K, 2) of workers, without and with a delay."""
        law = self.law
        node = place // self.layout.width
        usual = (law.level[node] + law.offset.reshape(-1)[place, None])[:, None]
        usual = usual + law.shift[:, None]
        late = law.delay.reshape(-1)[place]
        spread = law.spread.reshape(-1, usual.shape[-1])[place]
        late_spread = law.delay_spread.reshape(-1)[place]
        return (
            torch.stack((usual, usual + late[:, None, None]), -1),
            torch.stack((spread, late_spread[:, None].expand_as(spread)), -1)[:, None].expand(
                -1, len(law.shift), -1, -1
            ),
        )

    def _above(self, low: Tensor) -> Tensor:
        """Draw standard normals above `low` by inversion."""
        uniform = torch.rand(low.shape, generator=self.generator).clamp_(min=2.0**-25)
        tail = torch.special.erfc(low * math.sqrt(0.5)).mul_(uniform)
        z = torch.erfinv((1.0 - tail).clamp_(max=1.0 - 2.0**-24)).mul_(math.sqrt(2.0))
        z = torch.maximum(z, low)
        far = (low > _NEAR).reshape(-1).nonzero()[:, 0]
        if len(far):
            drawn = normal_above(low.reshape(-1)[far], uniform.reshape(-1)[far].double())
            z.view(-1)[far] = drawn.float()
        return z


class Given:
    """A forecast given which workers have finished by some time. Implements `Prediction`.

    It is exact: the weights of shifts, regimes and delays follow from Bayes' rule, and workers
    that have not finished are drawn from the normal law above the time that has passed.
    """

    def __init__(self, forecast: Forecast, arrived: Seconds, elapsed_s: float) -> None:
        self._forecast = forecast
        self._arrived = np.array(arrived, np.float64)
        self._waiting = np.isnan(self._arrived)
        self._elapsed_s = elapsed_s

    def given(self, arrived: Seconds, elapsed_s: float) -> Given:
        return Given(self._forecast, arrived, elapsed_s)

    def sample(self, count: int) -> Seconds:
        drawn = np.tile(self._arrived, (count, 1))
        if self._waiting.any():
            place = self._forecast.layout.place[torch.from_numpy(self._waiting)]
            above = self._elapsed_s if self._elapsed_s > 0.0 else None
            drawn[:, self._waiting] = self._forecast.draw(count, self._weights, place, above)
        return drawn

    @cached_property
    def _weights(self) -> _Weights:
        forecast, waiting = self._forecast, torch.from_numpy(self._waiting)
        layout, present = forecast.layout, forecast.layout.present
        if self._elapsed_s <= 0.0:
            before = forecast.weights()
            return before._replace(delay=before.delay[waiting])
        times = np.log(np.where(self._waiting, self._elapsed_s, self._arrived))
        away = layout.spread(torch.from_numpy(times - forecast.reference).float())
        away = torch.where(present, away, 0.0)
        usual, delayed = log_parts(forecast.law, away, layout.spread(waiting))
        both = torch.logaddexp(usual, delayed).mul_(present[..., None, None])
        shift, regime = posterior(forecast.law, both)
        place = layout.place[waiting]
        late = (delayed - both).flatten(0, 1).index_select(0, place).exp_()
        return _Weights(shift.exp(), regime.exp(), late)


def _at(table: Tensor, cell: Tensor) -> Tensor:
    """Look entries up by their numbers, ten times as fast as by indexing."""
    return table.reshape(-1).index_select(0, cell.reshape(-1)).view(cell.shape)
