"""The factor that all workers share: few points of a fine grid stand for all of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm

from outpace.predict.pooled.common import grid, likely, log_mixture, near, plausible
from outpace.predict.pooled.law import Law, log_likelihood, log_parts, posterior

_SPREAD = 0.03
_NODES, _WIDTH = 8, 4


def _law(size: float, *, nodes: int = _NODES, width: int = _WIDTH) -> Law:
    """Nodes are usual or twice as slow; workers straggle now and then; `size` of the factor."""
    points = grid(_SPREAD, 3.0)
    normal = torch.tensor([0.0]), torch.tensor([0.0]), torch.tensor([size])
    return Law(
        shift=points,
        log_shift=log_mixture(points, *normal),
        level=torch.tensor([0.0, math.log(2.0)]).repeat(nodes, 1),
        log_regime=torch.tensor([0.9, 0.1]).log().repeat(nodes, 1),
        offset=0.02 * torch.randn(nodes, width, generator=torch.Generator().manual_seed(3)),
        spread=torch.full((nodes, width, 2), _SPREAD),
        delay=torch.full((nodes, width), 0.4),
        delay_spread=torch.full((nodes, width), 0.2),
        straggle=torch.full((nodes, width), -5.0),
    )


def _times(law: Law, factor: float, slow: int, seed: int) -> torch.Tensor:
    """Draw log times, shape (J, W), of an iteration in which so many nodes are slow."""
    noise = torch.randn(law.offset.shape, generator=torch.Generator().manual_seed(seed))
    times = factor + law.offset + _SPREAD * noise
    times[:slow] += math.log(2.0)
    return times


def test_points_are_a_noise_apart_unless_they_would_be_too_many() -> None:
    points = grid(0.25, 1.0)
    assert points.tolist() == [-1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0]
    assert len(grid(0.001, 4.0)) == 2 * 256 + 1


def test_the_points_have_the_probabilities_of_normals_and_add_up_to_one() -> None:
    points = grid(0.1, 5.0)
    weight, middle = torch.tensor([0.0, math.log(3.0)]), torch.tensor([0.0, 0.4])
    found = log_mixture(points, weight, middle, torch.tensor([0.3, 0.8])).exp()
    assert float(found.sum()) == pytest.approx(1.0, abs=1e-5)
    expected = 0.1 * (
        0.25 * norm.pdf(points.numpy(), 0.0, 0.3) + 0.75 * norm.pdf(points.numpy(), 0.4, 0.8)
    )
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)


def test_a_normal_narrower_than_the_grid_is_on_the_nearest_point() -> None:
    points = grid(0.1, 1.0)
    one = torch.tensor([0.0])
    found = log_mixture(points, one, torch.tensor([0.32]), torch.tensor([0.001])).exp()
    assert float(found[points.isclose(torch.tensor(0.3))]) == pytest.approx(1.0)


@pytest.mark.parametrize("size", [0.01, 0.1, 0.6])
@pytest.mark.parametrize("slow", [0, 2, 5])
@pytest.mark.parametrize("cut", [False, True])
def test_eight_points_have_the_likelihood_of_the_whole_grid(
    size: float, slow: int, cut: bool
) -> None:
    """Of 32 workers, to 0.3; the whole is about 50. Cut: once half of them have come."""
    law = _law(size)
    known = torch.ones(_NODES, _WIDTH, dtype=torch.bool)
    for seed in range(6):
        times = _times(law, size * (-1.5, -0.7, 0.0, 0.3, 0.9, 2.0)[seed], slow, seed)
        bound = times.flatten().sort().values[15] if cut else times.max()
        censored = times > bound
        away = times.clamp(max=bound)
        few = near(law, away, known)
        assert few.shift.shape == (8,)
        whole, found = (float(log_likelihood(each, away, censored, known)) for each in (law, few))
        assert found == pytest.approx(whole, abs=0.3)


def test_where_nothing_is_known_the_middle_is_taken() -> None:
    law = _law(0.1)
    nothing = torch.full((_NODES, _WIDTH), torch.nan)
    few = near(law, nothing, ~nothing.isnan())
    assert few.shift[few.log_shift > -torch.inf].abs().max() <= 2.001 * _SPREAD
    assert len(set(few.shift[few.log_shift > -torch.inf].tolist())) == 5


@pytest.mark.parametrize(("nodes", "width"), [(8, 4), (1, 96), (96, 1)])
@pytest.mark.parametrize("came", [0, 3, 60])
def test_some_workers_say_which_points_matter_given_all(nodes: int, width: int, came: int) -> None:
    """Mean and standard deviation of the factor, with more workers than are asked first."""
    law = plausible(_law(0.4, nodes=nodes, width=width))
    came = min(came, nodes * width - 1)
    times = _times(law, 0.35, nodes // 4, 0)
    bound = times.flatten().sort().values[came - 1] if came else torch.tensor(-0.1)
    waiting = times > bound
    away = times.clamp(max=bound)
    present = torch.ones(nodes, width, dtype=torch.bool)
    mean, deviation = [], []
    for each in (law, likely(law, away, waiting, present)):
        weight = posterior(each, torch.logaddexp(*log_parts(each, away, waiting)))[0].exp()
        mean.append(float(weight @ each.shift))
        deviation.append(math.sqrt(float(weight @ (each.shift - mean[-1]).square())))
    assert mean[1] == pytest.approx(mean[0], abs=0.25 * _SPREAD)
    assert deviation[1] == pytest.approx(deviation[0], rel=0.1, abs=0.1 * _SPREAD)


def test_of_many_workers_few_points_are_asked_and_keep_the_whole_probability() -> None:
    """Before anybody has come the factor is uncertain: 2,000 workers, at most 16 points."""
    law = plausible(_law(0.4, nodes=100, width=20))
    away = torch.full((100, 20), -2.0)
    every = torch.ones(100, 20, dtype=torch.bool)
    found = likely(law, away, every, every)
    assert len(law.shift) > 100
    assert len(found.shift) <= 16
    assert float(found.log_shift.exp().sum()) == pytest.approx(1.0, abs=1e-5)
    assert float(found.log_shift.exp() @ found.shift) == pytest.approx(0.0, abs=0.05)
