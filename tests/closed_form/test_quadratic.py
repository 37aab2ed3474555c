"""The task `quadratic`: where gradient descent goes, and when delay makes it explode."""

from __future__ import annotations

import math

import numpy as np
import pytest

from outpace.experiment.running import simulate


def run(*, eigenvalues=(1.0,), noise=0.0, workers=1, lr, updates, sync=None, slow=(), **changes):
    return simulate(
        {
            "task": {"kind": "quadratic", "eigenvalues": list(eigenvalues), "noise": noise},
            "workers": workers,
            "sync": sync or {"kind": "asp", "scale": "sum"},
            "compute": {"kind": "constant", "mean_s": 1.0, "slow": list(slow)},
            "optimizer": {"lr": lr},
            "stop": {"iterations": updates // workers},
            "evaluate": {"every_updates": 1},
            **changes,
        }
    )


def run_delayed(delay: int, lr: float, updates: int, scale: str = "sum") -> list[float]:
    """Return the loss after each update, if most gradients are `delay` updates stale."""
    workers = delay + 1
    # Worker k starts its second iteration k/N s later than worker 0; from then on they take turns.
    slow = [{"workers": [k], "factor": 1 + k / workers, "until_s": 0.5} for k in range(1, workers)]
    sync = {"kind": "asp", "scale": scale}
    result = run(workers=workers, lr=lr, updates=updates, slow=slow, sync=sync)
    histogram = result.summary["staleness"]["histogram"]
    assert histogram[str(delay)] == updates // workers * workers - delay
    return [loss for loss in result.metrics["train_loss"].to_pylist() if loss is not None]


@pytest.mark.parametrize("delay", [0, 1, 2, 3, 7])
def test_a_fixed_delay_is_stable_just_below_its_bound_and_not_just_above(delay):
    # w ← w − ηλ·w(τ updates ago): the largest root of z^(τ+1) = z^τ − ηλ leaves the unit
    # circle at ηλ = 2 sin(π / (2(2τ+1))).
    bound = 2 * math.sin(math.pi / (2 * (2 * delay + 1)))
    below, above = (run_delayed(delay, bound * factor, 1200) for factor in (0.98, 1.02))
    assert max(below[-200:]) < 0.2 * max(below[100:300])
    assert max(above[-200:]) > 5 * max(above[100:300])


@pytest.mark.parametrize("delay", [2, 7])
def test_gradients_divided_by_their_staleness_stand_a_rate_larger_by_it(delay):
    bound = delay * 2 * math.sin(math.pi / (2 * (2 * delay + 1)))
    below, above = (
        run_delayed(delay, bound * factor, 1200, "staleness") for factor in (0.98, 1.02)
    )
    assert max(below[-200:]) < 0.2 * max(below[100:300])
    assert max(above[-200:]) > 5 * max(above[100:300])


def test_noise_leaves_the_variance_that_theory_has():
    # w ← (1 − ηλ)w − ησε: its variance goes to η²σ² / (1 − (1 − ηλ)²).
    size, lr, noise = 20_000, 0.2, 3.0
    result = run(eigenvalues=[1.0] * size, noise=noise, lr=lr, updates=60)
    variance = float(np.var(result.parameters["w"].numpy()))
    expected = (lr * noise) ** 2 / (1 - (1 - lr) ** 2)
    # The variance of a variance estimated from `size` normal numbers is 2/size of its square.
    assert variance == pytest.approx(expected, rel=4 * math.sqrt(2 / size))
