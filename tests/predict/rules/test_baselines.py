"""Elfving's rule, and the normal order statistics that it needs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate
from scipy.special import log_ndtr

from outpace.predict.interface import Wait
from outpace.predict.rules.baselines import Elfving, expected_order, normal_scores

NO_WORKER = np.zeros(100, dtype=bool)


def exact(n: int, j: int) -> float:
    ways = j * math.comb(n, j)

    def term(z: float) -> float:
        log = log_ndtr(z) * (j - 1) + log_ndtr(-z) * (n - j) - 0.5 * z * z
        return ways * z * math.exp(log) / math.sqrt(2.0 * math.pi)

    return integrate.quad(term, -9, 9, epsabs=1e-11)[0]


@pytest.mark.parametrize("n", range(1, 9))
def test_scores_of_a_few_are_the_integral(n):
    expected = [exact(n, j) for j in range(1, n + 1)]
    assert normal_scores(n) == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("n", [9, 10, 20, 158])
def test_scores_of_more_are_within_a_hundredth_and_a_half(n):
    expected = [exact(n, j) for j in range(1, n + 1)]
    assert normal_scores(n) == pytest.approx(expected, rel=0.015, abs=1e-8)


@pytest.mark.parametrize("n", [8, 20, 158])
def test_expected_times_of_normal_times_are_within_a_hundredth_and_a_half(n):
    times = np.random.default_rng(n).normal(10, 1, (2000, n))
    assert expected_order(times) == pytest.approx(np.sort(times).mean(axis=0), rel=0.015)


def test_elfving_waits_for_all_in_its_window_and_then_always_for_the_same():
    rule, random = Elfving(3), np.random.default_rng(0)
    waits = []
    for _ in range(6):
        waits.append(rule.begin())
        rule.observe(random.normal(1, 0.1, 100), NO_WORKER, 2.0)
    assert waits[:3] == [Wait()] * 3
    assert 50 < waits[3].count < 100
    assert waits[3:] == [waits[3]] * 3


def test_times_with_two_modes_do_not_make_elfving_wait_for_one_worker():
    rule = Elfving(1)
    times = np.where(np.arange(100) < 20, 1.0, 0.1)  # μ − 2σ is below zero
    rule.observe(times, NO_WORKER, 1.0)
    assert rule.begin().count > 20
