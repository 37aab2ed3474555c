"""The metrics of a run continue where an earlier session stopped."""

from __future__ import annotations

import pytest

from outpace.record.metrics import Metrics
from outpace.record.totals import Totals
from outpace.tasks import Evaluation


def later(metrics, interrupted):
    """Return the metrics, or those of a session that continues from a checkpoint."""
    if not interrupted:
        return metrics
    resumed = Metrics()
    resumed.take_up(metrics.kept())
    return resumed


@pytest.mark.parametrize("interrupted", [False, True])
def test_metrics_of_a_task_go_on_with_the_mean_since_the_last_evaluation(interrupted):
    metrics, totals = Metrics(), Totals(applied=2, loss_sum=3.0, losses=2)
    metrics.add(10**9, 2, Evaluation(0.5, 0.6, 0.7), totals)
    totals.loss_sum, totals.losses = 4.0, 3  # one batch with a loss of 1
    metrics = later(metrics, interrupted)
    assert metrics.last == {"train_loss": 0.5, "test_loss": 0.6, "accuracy": 0.7}
    totals.loss_sum, totals.losses, totals.applied = 6.0, 4, 3  # one with a loss of 2
    metrics.add(3 * 10**9, 3, Evaluation(0.3, 0.4, 0.8), totals)
    rows = metrics.table().to_pylist()
    assert [row["batch_loss"] for row in rows] == [1.5, 1.5]
    assert [row["time_s"] for row in rows] == [1, 3]


@pytest.mark.parametrize("interrupted", [False, True])
def test_metrics_of_a_script_go_on_with_the_worker_that_makes_the_curve(interrupted):
    metrics = Metrics()
    metrics.log(10**9, 1, 4, {"train_loss": 0.4, "lr": 0.1})
    metrics = later(metrics, interrupted)
    assert metrics.last == {"train_loss": 0.4}
    assert metrics.log(2 * 10**9, 2, 5, {"train_loss": 9.0, "depth": 2.0}) == Evaluation()
    assert metrics.log(3 * 10**9, 0, 5, {"train_loss": 8.0}) == Evaluation(8.0)
    rows = metrics.table().to_pylist()
    assert [row["lr"] for row in rows] == [0.1, None, None]
    assert [row["depth"] for row in rows] == [None, 2.0, None]
    assert [row["worker"] for row in rows] == [1, 2, 0]
