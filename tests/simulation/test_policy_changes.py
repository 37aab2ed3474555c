"""Changes of policies during a run, and waits for stragglers, on one parameter by hand."""

from __future__ import annotations

import pytest

from outpace.experiment.running import simulate


def config(**changes):
    """Return w from 1 by gradient w; the last of four workers takes 1.5 s instead of 1 s."""
    return {
        "task": {"kind": "quadratic", "eigenvalues": [1.0]},
        "workers": 4,
        "compute": {
            "kind": "constant",
            "mean_s": 1.0,
            "slow": [{"workers": [3], "factor": 1.5}],
        },
        "sync": {"kind": "bsp"},
        "optimizer": {"lr": 0.1},
        "stop": {"virtual_time_s": 1.6},
        **changes,
    }


def weight(result):
    (w,) = result.parameters.values()
    return w.item()


@pytest.mark.parametrize("scale", ["sum", "staleness", "mean"])
def test_gradients_that_wait_at_a_change_to_on_arrival_are_divided_by_all_workers(scale):
    later = {"kind": "asp", "scale": scale}
    result = simulate(config(sync_changes=[{"at_s": 1.2, "sync": later}]))
    # At 1.5 s the last of four gradients, all equal to 1, is applied by the new policy, and
    # then the three that waited under BSP: with `mean`, one step of 0.1 for the iteration.
    divisor = {"sum": 1, "staleness": 1, "mean": 4}[scale]
    assert weight(result) == pytest.approx(1 - 0.1 / divisor - 0.1 * 3 / 4)


def test_what_is_due_at_the_very_end_of_a_wait_counts_all_of_it():
    slow = [{"workers": [1, 2], "factor": 1.5}, {"workers": [3], "factor": 5.0}]
    compute = {"kind": "constant", "mean_s": 1.0, "slow": slow}
    patient = {"kind": "partial-push", "quorum": 1, "timeout_s": 0.5, "scale": "sum"}
    for tie_seed in (None, 1, 2, 3):
        result = simulate(
            config(sync=patient, compute=compute, stop={"virtual_time_s": 1.6}), tie_seed=tie_seed
        )
        assert weight(result) == pytest.approx(1 - 0.1 * 3)
        assert result.summary["gradients_dropped"] == 0


def test_the_learning_rate_does_not_go_back_when_another_policy_counts_otherwise():
    halved = {"kind": "step", "at_iterations": [2.0], "factor": 0.5}
    slow = [{"workers": [3], "factor": 2.9}]
    result = simulate(
        config(
            compute={"kind": "constant", "mean_s": 1.0, "slow": slow},
            sync={"kind": "asp", "scale": "sum"},
            sync_changes=[{"at_s": 3.5, "sync": {"kind": "bsp", "scale": "sum"}}],
            optimizer={"lr": 0.01, "schedule": halved},
            stop={"virtual_time_s": 5.9},
        )
    )
    w, read = 1.0, [1.0] * 4
    for count, worker in enumerate([0, 1, 2, 0, 1, 2, 3, 0, 1, 2]):  # applied as they come
        rate = 0.01 if count / 4 < 2 else 0.005
        w -= rate * read[worker]
        read[worker] = w
    w -= 0.005 * read[3]  # at 5.8 s iteration 1 is finished: V = 1, and yet no full rate again
    assert weight(result) == pytest.approx(w, rel=1e-6)
