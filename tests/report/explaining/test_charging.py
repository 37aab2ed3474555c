"""Tests of the seconds that slow units are charged for."""

from __future__ import annotations

import numpy as np
import pytest

from outpace.report.explaining.charging import Holds, held_because_of, shared


def test_the_example_of_the_module_is_charged_as_computed_by_hand():
    arrivals = np.array([[1.0, 1.1, 1.3, 1.6]])
    excess = np.array([[0.0, 0.0, 0.3, 0.5]])
    assert shared(arrivals, excess)[0] == pytest.approx([0, 0, 0.1, 0.4])


def test_nobody_is_charged_for_what_a_wait_that_ended_earlier_did_not_cost():
    """The iteration was closed after 1.2 s, without worker 1: worker 0 waited for 0.2 s."""
    charged = shared(np.array([[1.0, 2.0]]), np.array([[0.0, 1.0]]), np.array([1.2]))
    assert charged[0] == pytest.approx([0, 0.2])


def test_the_charges_are_never_more_than_any_usual_worker_has_waited():
    rng = np.random.default_rng(1)
    arrivals, slow = 1 + rng.exponential(1, (200, 6)), np.zeros((200, 6))
    slow[:, :3] = rng.uniform(0, 2, (200, 3))
    arrivals += slow
    arrivals[rng.random((200, 6)) < 0.1] = np.nan
    arrivals[:, 5] = 2.0
    waited = np.nanmax(arrivals, axis=1) - np.nanmax(arrivals[:, 3:], axis=1)
    charged = shared(arrivals, slow)
    assert (charged >= 0).all()
    assert (charged[:, 3:] == 0).all()
    assert (charged.sum(axis=1) <= waited + 1e-12).all()


def test_a_hold_is_charged_by_what_the_worker_has_needed_longer_since_the_last_one():
    """Worker 1 needs 0.3 s longer each time, and computes until 1, 2 and 3 s.

    Worker 0 was held for 0.2 s at 1 s (all of it is charged), and for 0.9 s at 3 s (0.6 s). A hold
    that worker 0 ended itself is not charged.
    """
    excess = np.array([[0, 0.3]] * 3)
    computed = np.array([[0.7, 1.0], [1.4, 2.0], [2.1, 3.0]])
    holds = Holds(
        np.array([0, 0, 1]), np.array([1, 1, 0]), np.array([1.0, 3.0, 2.5]), np.array([0.2, 0.9, 1])
    )
    charged, of_held = held_because_of(excess, computed, holds)
    assert of_held == pytest.approx([0.8, 0])
    assert charged.sum(axis=0) == pytest.approx([0, 0.8])
    assert charged[:, 1] == pytest.approx([0.2, 0, 0.6])
