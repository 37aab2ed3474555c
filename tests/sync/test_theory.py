"""Regret bounds, against each other and against the papers' examples."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace import theory

SAME = {"distance": 2.0, "lipschitz": 3.0, "workers": 64, "updates": 10_000}
stalenesses = st.integers(0, 1000)
probabilities = st.floats(0.001, 1.0)


def test_ssp_is_the_formula():
    expected = 4 * 2.0 * 3.0 * math.sqrt(2 * (3 + 1) * 64 / 10_000)
    assert theory.ssp_regret(staleness=3, **SAME) == pytest.approx(expected, rel=1e-12)


@given(stalenesses, probabilities)
def test_pssp_has_the_bound_of_ssp_with_the_equivalent_staleness(staleness, probability):
    pssp = theory.pssp_regret(staleness=staleness, block_probability=probability, **SAME)
    same = theory.equivalent_staleness(staleness, probability)
    assert theory.ssp_regret(staleness=same, **SAME) == pytest.approx(pssp, rel=1e-12)


@given(stalenesses, probabilities)
def test_dynamic_pssp_has_the_bound_of_the_least_it_blocks_with(staleness, alpha):
    dynamic = theory.dynamic_pssp_regret(staleness=staleness, alpha=alpha, **SAME)
    least = alpha / (1 + math.exp(0))  # at lead k = s
    constant = theory.pssp_regret(staleness=staleness, block_probability=least, **SAME)
    assert dynamic == pytest.approx(constant, rel=1e-12)


@pytest.mark.parametrize(("one_over_c", "staleness"), [(2, 4), (3, 5), (5, 7), (10, 12)])
def test_the_pairs_of_figure_9(one_over_c, staleness):
    assert theory.equivalent_staleness(3, 1 / one_over_c) == pytest.approx(staleness, rel=1e-12)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"staleness": -1}, "staleness must be at least 0"),
        ({"staleness": math.nan}, "staleness must be"),
        ({"workers": 0}, "workers must be at least 1"),
        ({"updates": 0}, "updates must be at least 1"),
        ({"distance": 0.0}, "distance must be positive"),
        ({"lipschitz": math.inf}, "lipschitz must be positive and finite"),
        ({"block_probability": 0.0}, "block_probability must be above 0"),
        ({"block_probability": 1.1}, "block_probability must be above 0"),
        ({"alpha": 0.0}, "alpha must be above 0"),
        ({"alpha": math.nan}, "alpha must be above 0"),
    ],
)
def test_arguments_out_of_range(change, problem):
    functions = {"block_probability": theory.pssp_regret, "alpha": theory.dynamic_pssp_regret}
    (key,) = change
    with pytest.raises(ValueError, match=problem):
        functions.get(key, theory.ssp_regret)(**{"staleness": 3, **SAME, **change})
