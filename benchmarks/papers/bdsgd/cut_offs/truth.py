"""The prediction of a perfect model, which knows the law of the run times and its state.

A worker's log run time is what is usual for it, plus what all share, plus its node's regime,
plus one of a few offsets (a straggler's), plus normal noise. The shared part and the regimes take
one of finitely many values each. Given these values workers are independent, so that conditioning
on the workers that have arrived, and on those that have not, is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from outpace.predict.interface import Prediction
from outpace.predict.normal import normal_above

Array = NDArray[np.float64]

_MANY: Final = 16  # values of the shared part
_RULED_OUT: Final = 40.0  # log probability below that of the most probable value


@dataclass(frozen=True, eq=False)
class Law:
    """The law of one iteration's run times; probabilities are logarithms.

    usual: (N,); deviation: the noise's. node: (N,). shared: (J,), regimes: (M, G) shifts;
    offsets: (C,) with probabilities (N, C).
    """

    usual: Array
    deviation: float
    node: NDArray[np.int64]
    shared: Array
    shared_logp: Array
    regimes: Array
    regimes_logp: Array
    offsets: Array
    offsets_logp: Array


@dataclass(frozen=True, eq=False)
class Known:
    """The law, conditioned on what has arrived by now."""

    law: Law
    random: np.random.Generator
    arrived: Array
    elapsed_s: float = 0.0

    def given(self, arrived: Array, elapsed_s: float) -> Known:
        return replace(self, arrived=arrived, elapsed_s=elapsed_s)

    def sample(self, count: int) -> Array:
        law, random = self._plausible(), self.random
        shared_logp, regimes_logp = self._posterior(law)  # (J,), (J, M, G)
        turn = np.arange(count)
        shared = _draw(np.broadcast_to(shared_logp, (count, len(shared_logp))), random)
        regime = _draw(regimes_logp[shared], random)  # (count, M)
        shift = law.shared[shared][:, None] + law.regimes[np.arange(len(law.regimes)), regime]
        draws = np.broadcast_to(self.arrived, (count, len(law.usual))).copy()
        still = np.isnan(self.arrived)
        mean = law.usual[still] + shift[turn[:, None], law.node[still]]
        low = (self._log_elapsed() - mean[:, :, None] - law.offsets) / law.deviation
        # At the beginning nothing is known, and the largest cluster has two million tails.
        later = _log_above(low) if self.elapsed_s else np.zeros_like(low)
        kind = _draw(law.offsets_logp[still] + later, random)
        at_least = torch.from_numpy(np.take_along_axis(low, kind[:, :, None], 2)[:, :, 0])
        noise = normal_above(at_least, torch.from_numpy(1 - random.random(mean.shape))).numpy()
        times = np.exp(mean + law.offsets[kind] + law.deviation * noise)
        draws[:, still] = np.maximum(times, np.nextafter(self.elapsed_s, np.inf))
        return draws

    def _log_elapsed(self) -> float:
        return float(np.log(self.elapsed_s)) if self.elapsed_s else -np.inf

    def _plausible(self) -> Law:
        """Return the law without values of the shared part that some workers rule out."""
        law = self.law
        if not self.elapsed_s or len(law.shared) <= _MANY:
            return law
        some = slice(None, None, 4)
        part = replace(
            law, usual=law.usual[some], node=law.node[some], offsets_logp=law.offsets_logp[some]
        )
        found, _ = replace(self, arrived=self.arrived[some])._posterior(part)
        kept = found > found.max() - _RULED_OUT
        return replace(law, shared=law.shared[kept], shared_logp=law.shared_logp[kept])

    def _posterior(self, law: Law) -> tuple[Array, Array]:
        if not self.elapsed_s:
            return law.shared_logp, np.broadcast_to(
                law.regimes_logp, (len(law.shared), *law.regimes.shape)
            )
        came = ~np.isnan(self.arrived)
        shift = law.shared[:, None, None] + law.regimes[law.node]  # (J, N, G)
        time = np.where(came, np.log(np.where(came, self.arrived, 1)), self._log_elapsed())
        z = (time - law.usual)[:, None, None] - shift[..., None] - law.offsets
        z /= law.deviation  # (J, N, G, C)
        likelihood = -np.square(z) / 2
        likelihood[:, ~came] = _log_above(z[:, ~came])
        each = np.logaddexp.reduce(likelihood + law.offsets_logp[:, None], axis=-1)
        nodes = np.zeros((len(law.shared), *law.regimes.shape))
        np.add.at(nodes.swapaxes(0, 1), law.node, each.swapaxes(0, 1))
        nodes += law.regimes_logp
        total = np.logaddexp.reduce(nodes, axis=-1)
        return law.shared_logp + total.sum(axis=1), nodes


class Knowing:
    """A filter that knows the law of each iteration."""

    def __init__(self, law: Callable[[int], Law], seed: int) -> None:
        self._law = law
        self._random = np.random.default_rng(seed)
        self._iteration = 0

    def observe(self, seconds: Array, censored: NDArray[np.bool_]) -> None:
        self._iteration += 1

    def predict(self) -> Prediction:
        law = self._law(self._iteration)
        return Known(law, self._random, np.full(len(law.usual), np.nan))


def _log_above(z: Array) -> Array:
    return torch.special.log_ndtr(torch.from_numpy(-z)).numpy()


def _draw(logp: Array, random: np.random.Generator) -> NDArray[np.int64]:
    """Draw an index of the last axis, by log probabilities that need not be normalised."""
    p = np.exp(logp - logp.max(axis=-1, keepdims=True)).cumsum(axis=-1)
    return (p < random.random((*p.shape[:-1], 1)) * p[..., -1:]).sum(axis=-1)
