"""Predictions of the deep Markov model, also given the workers that have finished."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st

from outpace.predict.deep_markov.mixture import Known, Mixture

NAN = math.nan


def mixture(mean, std, *, ordered=False, seed=0):
    mean = torch.tensor(mean, dtype=torch.float64)
    std = torch.full_like(mean, std)
    even, nothing = torch.full((len(mean),), 1 / len(mean)).double(), Known.nothing(mean.shape[1])
    return Mixture(mean, std, torch.Generator().manual_seed(seed), ordered, even, nothing)


def many(mean, count=100):
    return [list(mean) for _ in range(count)]


def test_finished_workers_keep_their_times_and_the_others_take_longer():
    known = mixture(many([0.0, 0.1, 0.2]), 0.3).given(np.array([NAN, 0.7, NAN]), 1.1)
    draws = known.sample(5000)
    assert np.allclose(draws[:, 1], 0.7, rtol=1e-12)
    assert (draws[:, [0, 2]] >= 1.1 * (1 - 1e-12)).all()
    for worker, mean in ((0, 0.0), (2, 0.2)):
        low = (math.log(1.1) - mean) / 0.3
        law = scipy.stats.truncnorm(low, math.inf, loc=mean, scale=0.3)
        assert scipy.stats.kstest(np.log(draws[:, worker]), law.cdf).pvalue > 0.01


def test_components_are_weighed_by_bayes_rule():
    # Two states of the cluster; one worker has come, one has not.
    normal, slow, std = (0.0, 0.0), (0.2, 0.5), 0.3
    known = mixture([normal] * 50 + [slow] * 50, std).given(np.array([1.2, NAN]), 1.25)
    came, low = math.log(1.2), math.log(1.25)
    odds = [
        scipy.stats.norm.pdf(came, a, std) * scipy.stats.norm.sf(low, b, std)
        for a, b in (normal, slow)
    ]
    assert float(known.weight[50:].sum()) == pytest.approx(odds[1] / sum(odds), rel=1e-4)


@given(
    st.lists(st.one_of(st.floats(1e-6, 1e3), st.just(NAN)), min_size=1, max_size=8),
    st.floats(1e-3, 1e6),
    st.booleans(),
)
def test_whatever_came_draws_are_finite_and_keep_what_is_known(arrived, elapsed_s, ordered):
    arrived = np.array([x if x <= elapsed_s else NAN for x in arrived])
    base = mixture(many(np.linspace(-1, 1, len(arrived)), 10), 0.01, ordered=ordered)
    draws = base.given(arrived, elapsed_s).sample(5)
    came = ~np.isnan(arrived)
    assert np.isfinite(draws).all()
    assert np.allclose(draws[:, came], arrived[came], rtol=1e-9)
    assert (draws[:, ~came] >= elapsed_s * (1 - 1e-9)).all()


def test_in_order_an_absent_worker_has_any_rank():
    x = torch.tensor([0.0, math.log(4.0), NAN], dtype=torch.float64)
    low, generator = torch.full((3,), -torch.inf), torch.Generator().manual_seed(0)
    places = {
        Known.arranged(x, low, generator, ordered=True).place.tolist().index(2) for _ in range(50)
    }
    assert places == {0, 1, 2}
