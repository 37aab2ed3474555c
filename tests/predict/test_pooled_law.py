"""The likelihood of the pooled model's mixture, and draws from it, against brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp

from outpace.predict.pooled.law import Law, log_likelihood
from outpace.predict.pooled.model import Forecast
from outpace.predict.pooled.tracks import NodeLayout

_FLAGS = list(itertools.product((False, True), repeat=2))
_NODE = np.array([0, 0, 1, 1])


def _law(seed: int = 0) -> Law:
    """Two nodes with two workers each, three shifts, two regimes; nothing negligible."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    return Law(
        shift=0.1 * draw(3),
        log_shift=draw(3).log_softmax(-1),
        level=0.4 * draw(2, 2),
        log_regime=draw(2, 2).log_softmax(-1),
        offset=0.1 * draw(2, 2),
        spread=0.15 * (0.3 * draw(2, 2, 2)).exp(),
        delay=0.3 * (0.5 * draw(2, 2)).exp(),
        delay_spread=0.2 * (0.3 * draw(2, 2)).exp(),
        straggle=draw(2, 2) - 1.0,
    )


def _density(law: Law, away: np.ndarray, censored: np.ndarray, known: np.ndarray) -> float:
    """Return the density as a sum over all combinations."""
    total = 0.0
    parts = [part.numpy() for part in law]
    shift, log_shift, level, log_regime, offset, spread, delay, delay_spread, straggle = parts
    for q, regimes, late in itertools.product(
        range(3), itertools.product(range(2), repeat=2), itertools.product((0, 1), repeat=4)
    ):
        chance = math.exp(log_shift[q])
        for node in range(2):
            k = regimes[node]
            chance *= math.exp(log_regime[node, k])
            for worker in range(2):
                is_late = late[2 * node + worker]
                odds = 1.0 / (1.0 + math.exp(-straggle[node, worker]))
                chance *= odds if is_late else 1.0 - odds
                if not known[node, worker]:
                    continue
                middle = shift[q] + level[node, k] + offset[node, worker]
                width = spread[node, worker, k]
                if is_late:
                    middle += delay[node, worker]
                    width = delay_spread[node, worker]
                z = (away[node, worker] - middle) / width
                if censored[node, worker]:
                    chance *= 0.5 * math.erfc(z / math.sqrt(2.0))
                else:
                    chance *= math.exp(-0.5 * z * z) / (width * math.sqrt(2.0 * math.pi))
        total += chance
    return total


@pytest.mark.parametrize("censored", _FLAGS)
@pytest.mark.parametrize("known", _FLAGS)
def test_the_likelihood_is_the_sum_over_all_shifts_regimes_and_delays(
    censored: tuple[bool, bool], known: tuple[bool, bool]
) -> None:
    law = _law()
    away = np.array([[0.1, -0.3], [0.4, 0.2]])
    cut = np.array([censored, (False, True)])
    there = np.array([known, (True, True)])
    found = log_likelihood(law, *map(torch.from_numpy, (away, cut, there)))
    assert float(found) == pytest.approx(math.log(_density(law, away, cut, there)), rel=1e-9)


def test_draws_have_the_density_of_the_likelihood() -> None:
    law = _law(3)
    times = np.log(_forecast(law).sample(40_000) / 2.0)
    for worker, (row, column) in enumerate(itertools.product(range(2), repeat=2)):
        bound = float(np.quantile(times[:, worker], 0.7))
        cut = np.zeros((2, 2), bool)
        cut[row, column] = True
        more = _density(law, np.full((2, 2), bound), cut, cut)
        assert (times[:, worker] > bound).mean() == pytest.approx(more, abs=0.01)


@pytest.mark.parametrize("seed", [4, 5, 6])
def test_conditional_draws_are_those_left_of_many_draws(seed: int) -> None:
    """Two workers have come within 1 % of a time, two have not. Rejection; KS test at 0.1 %.

    The times are frequent ones, since in the tails the density changes within 1 %.
    """
    forecast = _forecast(_law(seed))
    draws = forecast.sample(1_500_000)
    case = draws[np.abs(draws / np.median(draws, axis=0) - 1.0).sum(axis=1).argmin()]
    first, second, *rest = np.argsort(case)
    elapsed = case[second]
    near = (np.abs(draws[:, [first, second]] / case[[first, second]] - 1.0) < 0.01).all(axis=1)
    kept = draws[near & (draws[:, rest] > elapsed).all(axis=1)]
    found = forecast.given(np.where(case <= elapsed, case, np.nan), elapsed).sample(5_000)
    assert len(kept) > 50
    assert (found[:, [first, second]] == case[[first, second]]).all()
    assert (found[:, rest] >= elapsed).all()
    for worker in rest:
        assert ks_2samp(kept[:, worker], found[:, worker]).pvalue > 1e-3
    assert ks_2samp(kept[:, rest].prod(axis=1), found[:, rest].prod(axis=1)).pvalue > 1e-3


def test_time_beyond_all_that_was_thought_possible_gives_finite_draws() -> None:
    forecast = _forecast(_law(9))
    found = forecast.given(np.array([1.0, np.nan, np.nan, np.nan]), 1e6).sample(50)
    assert np.isfinite(found).all()
    assert (found[:, 1:] >= 1e6).all()


def _forecast(law: Law) -> Forecast:
    layout, nothing = NodeLayout.of(_NODE), np.full(4, np.nan)
    return Forecast(law, math.log(2.0), layout, torch.Generator().manual_seed(0), nothing)


def test_a_layout_follows_the_first_times_and_keeps_nodes_together() -> None:
    """Node 7 has the larger size, node 2 the faster worker; worker 3 is the fastest of node 7."""
    node = np.array([4, 7, 2, 7, 7])
    first = np.array([2.0, 3.0, 1.0, 1.5, np.nan])
    layout = NodeLayout.of(node, first)
    assert (layout.nodes, layout.width) == (3, 3)
    assert layout.workers.tolist() == [3, 1, 4, 2, 0]
    assert layout.place.tolist() == [6, 1, 3, 0, 2]
