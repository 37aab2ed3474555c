"""Elfving's rule, and the normal order statistics that it needs."""

from __future__ import annotations

import numpy as np
import pytest

from outpace.predict.rules.baselines import Elfving, expected_order

NO_WORKER = np.zeros(100, dtype=bool)


@pytest.mark.parametrize("n", [8, 20, 158])
def test_expected_times_of_normal_times_are_within_a_hundredth_and_a_half(n):
    times = np.random.default_rng(n).normal(10, 1, (2000, n))
    assert expected_order(times) == pytest.approx(np.sort(times).mean(axis=0), rel=0.015)


def test_times_with_two_modes_do_not_make_elfving_wait_for_one_worker():
    rule = Elfving(1)
    times = np.where(np.arange(100) < 20, 1.0, 0.1)  # μ − 2σ is below zero
    rule.observe(times, NO_WORKER, 1.0)
    assert rule.begin().count > 20
