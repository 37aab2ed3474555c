"""The factor that all workers share: few points of a fine grid represent all of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from outpace.predict.pooled.law import (
    Factor,
    Law,
    likely,
    log_likelihood,
    log_parts,
    near,
    plausible,
    posterior,
)

_SPREAD = 0.03
_NODES, _WIDTH = 8, 4


def _law(*, nodes: int = _NODES, width: int = _WIDTH) -> Law:
    """Return a law: nodes are normal or twice as slow; some workers straggle; the shift is 0."""
    return Law(
        shift=torch.zeros(1),
        log_shift=torch.zeros(1),
        level=torch.tensor([0.0, math.log(2.0)]).repeat(nodes, 1),
        log_regime=torch.tensor([0.9, 0.1]).log().repeat(nodes, 1),
        offset=0.02 * torch.randn(nodes, width, generator=torch.Generator().manual_seed(3)),
        spread=torch.full((nodes, width, 2), _SPREAD),
        delay=torch.full((nodes, width), 0.4),
        delay_spread=torch.full((nodes, width), 0.2),
        straggle=torch.full((nodes, width), -5.0),
    )


def _factor(size: float) -> Factor:
    return Factor(torch.tensor([0.0]), torch.tensor([0.0]), torch.tensor([size]))


def _everywhere(law: Law, size: float) -> Law:
    """Return the law with points a 20th of a spread apart, for a factor of this size."""
    step = _SPREAD / 20
    far = math.ceil(6.0 * max(size, 0.1) / step)
    points = step * torch.arange(-far, far + 1)
    return law._replace(shift=points, log_shift=_factor(size).log_share(points, torch.tensor(step)))


def _everyone(law: Law) -> Tensor:
    return torch.ones(law.offset.shape, dtype=torch.bool)


def _times(law: Law, factor: float, slow: int, seed: int) -> Tensor:
    """Draw log times, shape (J, W), of an iteration in which this many nodes are slow."""
    noise = torch.randn(law.offset.shape, generator=torch.Generator().manual_seed(seed))
    times = factor + law.offset + _SPREAD * noise
    times[:slow] += math.log(2.0)
    return times


@pytest.mark.parametrize("middle", [0.3, 0.33, 0.35])
def test_a_normal_narrower_than_the_grid_is_not_lost_between_its_points(middle: float) -> None:
    points = 0.1 * torch.arange(-10, 11)
    factor = Factor(torch.tensor([0.0]), torch.tensor([middle]), torch.tensor([0.001]))
    found = factor.log_share(points, torch.tensor(0.1)).exp()
    assert float(found.sum()) == pytest.approx(1.0, abs=0.03)
    assert float(found @ points) == pytest.approx(middle, abs=0.01)


@pytest.mark.parametrize(
    ("size", "slow", "came", "within"),
    [(0.005, 0, 32, 0.2), (0.1, 2, 16, 0.2), (0.6, 5, 6, 1.1), (0.6, 2, 32, 0.2)],
)
def test_six_points_have_the_likelihood_of_the_whole_grid(
    size: float, slow: int, came: int, within: float
) -> None:
    """32 workers; the grid has about 50 points. Iterations end with the first `came` workers."""
    law = _law()
    known = _everyone(law)
    whole = _everywhere(law, size)
    for seed in range(6):
        times = _times(law, size * (-1.5, -0.7, 0.0, 0.3, 0.9, 2.0)[seed], slow, seed)
        bound = times.flatten().sort().values[came - 1]
        censored = times > bound
        away = times.clamp(max=bound)
        few = near(law, _factor(size), away, censored, known)
        assert few.shift.shape == (6,)
        found, expected = (
            float(log_likelihood(each, away, censored, known)) for each in (few, whole)
        )
        assert found == pytest.approx(expected, abs=within)


@pytest.mark.parametrize(
    ("nodes", "width", "came", "size"), [(8, 4, 0, 0.05), (1, 96, 3, 0.6), (96, 1, 60, 0.6)]
)
def test_some_workers_say_which_points_matter_given_all(
    nodes: int, width: int, came: int, size: float
) -> None:
    """Compares the factor's mean and deviation, with more workers than are evaluated first."""
    law = _law(nodes=nodes, width=width)
    every = _everyone(law)
    law = plausible(law, _factor(size), every)
    came = min(came, nodes * width - 1)
    errors = []
    for seed in range(16):
        times = _times(law, 0.8 * size, nodes // 4, seed)
        bound = times.flatten().sort().values[came - 1] if came else torch.tensor(-0.1)
        waiting = times > bound
        away = times.clamp(max=bound)
        found = []
        for each in (law, likely(law, away, waiting, every)):
            weight = posterior(each, torch.logaddexp(*log_parts(each, away, waiting)))[0].exp()
            mean = float(weight @ each.shift)
            found += [mean, math.sqrt(float(weight @ (each.shift - mean).square()))]
        mean, deviation, found_mean, found_deviation = found
        errors.append([(found_mean - mean) / deviation, found_deviation / deviation - 1.0])
    # A third of the workers judges: with three arrivals the errors are about a tenth, and a law
    # whose points are joined at their prior mean has twice as much.
    assert np.sqrt(np.square(errors).mean(axis=0)).max() < 0.15
