"""Draws from the law of one iteration, and the same once it is known who has come."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from outpace.predict.pooled.law import Law, log_parts, posterior
from outpace.predict.pooled.layout import Layout
from outpace.predict.truncated import normal_above
from outpace.runtimes.table import Seconds


@dataclass(frozen=True, slots=False)
class Forecast:
    """The law of an iteration, without leading dimensions, and the reference it is relative to.

    The random numbers of all draws come from `generator`, one after the other.
    """

    law: Law
    reference: float
    layout: Layout
    present: Tensor
    generator: torch.Generator

    def sample(self, count: int) -> Seconds:
        """Joint draws, shape (count, N)."""
        law = self.law
        nodes, _, regimes = law.spread.shape
        shift = law.log_shift.exp()
        regime = law.log_regime.exp()[:, None, :].expand(-1, len(shift), -1)
        workers = torch.arange(len(self.layout.place))
        tail = law.straggle.sigmoid().reshape(-1)[self.layout.place]
        tail = tail.expand(len(shift), regimes, -1)
        draws = self._draw(count, shift, regime, tail, workers, None)
        return draws

    def given(self, arrived: Seconds, elapsed_s: float) -> Given:
        """The same once it is known who has come, by Bayes' rule."""
        return Given(self, arrived, elapsed_s)

    def _draw(
        self,
        count: int,
        shift: Tensor,
        regime: Tensor,
        straggle: Tensor,
        workers: Tensor,
        above: float | None,
    ) -> Seconds:
        """Times of some workers, shape (count, n), all greater than `above`.

        Probabilities of shifts (Q,), regimes (J, Q, K) and delays (Q, K, n).
        """
        law, generator = self.law, self.generator
        many = len(workers)
        place = self.layout.place[workers]
        node = place // self.layout.width
        regimes = regime.shape[-1]
        # One draw from each of `count` equal parts: no draw is wasted on chance.
        even = (torch.arange(count) + torch.rand(count, generator=generator)) / count
        which = torch.searchsorted(shift.cumsum(0), even).clamp_(max=len(shift) - 1)
        steps = regime.cumsum(-1)[..., :-1].transpose(0, 1)[which]  # (count, J, K - 1)
        chance = torch.rand(count, len(regime), 1, generator=generator)
        turn = (chance > steps).sum(-1)[:, node]  # (count, n)

        column = torch.arange(many)
        late = torch.rand(count, many, generator=generator) < straggle.reshape(-1)[
            ((which[:, None] * regimes + turn) * many).add_(column)
        ]
        cell = (turn * many).add_(column)
        middle = (law.level[node] + law.offset.reshape(-1)[place, None]).T.reshape(-1)[cell]
        spread = law.spread.reshape(-1, regimes)[place].T.reshape(-1)[cell]
        delay = law.delay.reshape(-1)[place]
        middle = torch.where(late, middle + delay, middle).add_(law.shift[which][:, None])
        spread = torch.where(late, law.delay_spread.reshape(-1)[place], spread)
        if above is None:
            times = torch.randn(count, many, generator=generator).mul_(spread).add_(middle)
            return times.double().add_(self.reference).exp_().numpy()
        bound = math.log(above) - self.reference
        uniform = torch.rand(count, many, generator=generator, dtype=torch.float64)
        z = normal_above((bound - middle).div_(spread), uniform.clamp_(min=1e-300))
        return z.mul_(spread).add_(middle).add_(self.reference).exp_().numpy()


class Given:
    """A forecast conditioned on who has come after so long.

    Exact: the weights of shifts, regimes and delays are those of Bayes' rule, and who has not
    come is drawn from the normal law above the time that has passed.
    """

    def __init__(self, forecast: Forecast, arrived: Seconds, elapsed_s: float) -> None:
        self._forecast = forecast
        self._arrived = np.asarray(arrived, np.float64)
        self._elapsed_s = elapsed_s
        self._waiting = torch.from_numpy(np.flatnonzero(np.isnan(self._arrived)))

    def given(self, arrived: Seconds, elapsed_s: float) -> Given:
        """As of the forecast: what comes later says everything again."""
        return Given(self._forecast, arrived, elapsed_s)

    def sample(self, count: int) -> Seconds:
        """Joint draws, shape (count, N): who has come is where he is."""
        found = np.repeat(self._arrived[None], count, axis=0)
        if len(self._waiting):
            found[:, self._waiting.numpy()] = self._rest(count)
        return found

    def _rest(self, count: int) -> Seconds:
        forecast = self._forecast
        if self._elapsed_s <= 0.0:
            shift, regime, straggle = self._weights_before
        else:
            shift, regime, straggle = self._weights
        above = self._elapsed_s if self._elapsed_s > 0.0 else None
        return forecast._draw(count, shift, regime, straggle, self._waiting, above)

    @cached_property
    def _weights(self) -> tuple[Tensor, Tensor, Tensor]:
        forecast = self._forecast
        layout = forecast.layout
        with np.errstate(divide="ignore"):
            times = np.log(np.where(np.isnan(self._arrived), self._elapsed_s, self._arrived))
        away = layout.spread(torch.from_numpy(times - forecast.reference).float())
        away = torch.where(forecast.present, away, 0.0)
        waiting = layout.spread(torch.from_numpy(np.isnan(self._arrived)))
        usual, delayed = log_parts(forecast.law, away, waiting)
        both = torch.logaddexp(usual, delayed) * forecast.present[..., None, None]
        shift, regime = posterior(forecast.law, both)
        place = layout.place[self._waiting]
        late = (delayed - both).reshape(-1, *both.shape[-2:])[place].exp()
        return shift.exp(), regime.exp(), late.permute(1, 2, 0)

    @cached_property
    def _weights_before(self) -> tuple[Tensor, Tensor, Tensor]:
        law = self._forecast.law
        shift = law.log_shift.exp()
        regime = law.log_regime.exp()[:, None, :].expand(-1, len(shift), -1)
        tail = law.straggle.sigmoid().reshape(-1)[self._forecast.layout.place][self._waiting]
        return shift, regime, tail.expand(len(shift), regime.shape[-1], -1)
