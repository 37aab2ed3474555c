"""Points that scripts log: they are checked and kept with all values, and a run has one curve."""

import math

import numpy as np
import pytest
import torch

from outpace.errors import ConfigError
from outpace.record.curves import curve_of
from outpace.record.logged import checked
from outpace.record.metrics import METRICS, Metrics
from outpace.support.targets import Target


def test_numbers_and_single_elements_are_logged_by_the_name_of_their_column():
    values = {
        "loss": torch.tensor([0.5]),
        "accuracy": np.float32(0.25),
        "lr": 3,
        "val/f1": np.array([1.5]),
    }
    assert checked(values, "worker-1") == {
        "train_loss": 0.5,
        "accuracy": 0.25,
        "lr": 3.0,
        "val/f1": 1.5,
    }
    assert checked({"loss": None, "accuracy": None}, "worker-1") == {}
    assert math.isnan(checked({"loss": math.nan}, "worker-1")["train_loss"])


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"loss": torch.zeros(3)}, "loss has 3 elements"),
        ({"lr": np.zeros((2, 2))}, "lr has 4 elements"),
        ({"note": "good"}, "note must be a number.*not str"),
        ({"f1": None}, "f1 must be a number.*not NoneType"),
        ({"accuracy": 93.2}, "from 0 to 1, not 93.2"),
        ({"accuracy": math.inf}, "from 0 to 1, not inf"),
        ({"time_s": 1.0}, "'time_s' cannot be logged"),
        ({"train_loss": 1.0}, "log it as `loss`"),
        ({"": 1.0}, "printable"),
        ({"x" * 101: 1.0}, "at most 100 characters"),
    ],
)
def test_an_error_names_what_cannot_be_logged_and_the_worker(values, why):
    with pytest.raises(ConfigError, match=f"worker-1.*{why}"):
        checked(values, "worker-1")


def test_every_point_is_a_row_and_the_lowest_worker_makes_the_curve():
    metrics = Metrics()
    # The curve is worker 2's until worker 0 logs the quantity; worker 1 comes in between.
    said = [
        metrics.log(10**9, 2, 5, {"accuracy": 0.2, "lr": 0.1}),
        metrics.log(2 * 10**9, 1, 6, {"train_loss": 3.0}),
        metrics.log(3 * 10**9, 0, 4, {"accuracy": 0.4, "train_loss": 2.0}, gradients=9),
        metrics.log(4 * 10**9, 2, 9, {"accuracy": 0.9, "train_loss": 0.1}),
        metrics.log(5 * 10**9, 0, 7, {"accuracy": 0.8, "train_loss": math.nan}),
    ]
    assert [each.accuracy for each in said] == [0.2, None, 0.4, None, 0.8]
    assert [each.train_loss for each in said] == [None, 3.0, 2.0, None, None]
    table = metrics.table()
    assert table.column_names == [*METRICS.names, "lr"]
    assert table["worker"].to_pylist() == [2, 1, 0, 2, 0]
    assert table["iteration"].to_pylist() == [5, 6, 4, 9, 7]
    assert table["gradients"].to_pylist() == [None, None, 9, None, None]
    assert table["lr"].to_pylist() == [0.1, None, None, None, None]
    assert table["accuracy"].to_pylist() == [0.2, None, 0.4, 0.9, 0.8]
    curve = curve_of(table)
    assert curve["accuracy"].to_pylist() == [0.2, None, 0.4, None, 0.8]
    assert curve["train_loss"].to_pylist() == [None, 3.0, 2.0, None, None]
    assert metrics.summary(Target(accuracy=0.8)) == {
        "train_loss": 2.0,
        "test_loss": None,
        "accuracy": 0.8,
        "time_to_target_s": 5.0,
        "best": {
            "train_loss": {"value": 2.0, "time_s": 3.0},
            "test_loss": None,
            "accuracy": {"value": 0.8, "time_s": 5.0},
        },
    }
    assert metrics.summary(Target(loss=2.0))["time_to_target_s"] == 3.0
    assert metrics.summary(Target(loss=1.9))["time_to_target_s"] is None


def test_names_that_come_late_are_columns_of_all_rows_and_too_many_are_refused():
    metrics = Metrics()
    for n in range(8193):  # one more than the number that is kept as Python objects
        metrics.log(n, 0, n, {"lr": float(n)})
    metrics.log(8193, 0, 8193, {"norm": 1.0})
    table = metrics.table()
    assert len(table) == 8194
    assert table["lr"].to_pylist()[8190:] == [8190.0, 8191.0, 8192.0, None]
    assert table["norm"].null_count == 8193
    with pytest.raises(ConfigError, match="more than 500 different names"):
        metrics.log(0, 0, 0, {f"name {n}": 0.0 for n in range(499)})


def test_a_session_that_continues_keeps_the_worker_that_makes_the_curve():
    before, metrics = Metrics(), Metrics()
    before.log(10**9, 1, 4, {"train_loss": 0.4, "lr": 0.1})
    metrics.take_up(before.kept())
    assert metrics.last == {"train_loss": 0.4}
    assert metrics.log(2 * 10**9, 2, 5, {"train_loss": 9.0, "depth": 2.0}).train_loss is None
    assert metrics.log(3 * 10**9, 0, 5, {"train_loss": 8.0}).train_loss == 8.0
    rows = metrics.table().to_pylist()
    assert [row["lr"] for row in rows] == [0.1, None, None]
    assert [row["depth"] for row in rows] == [None, 2.0, None]
    assert [row["worker"] for row in rows] == [1, 2, 0]
