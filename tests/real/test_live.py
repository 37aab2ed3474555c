"""The picture in the terminal, as a function of what the processes have reported."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

from outpace.config.reading import experiment_from
from outpace.experiment.running import run
from outpace.real.live import Sample, gathering, overview, picture, rows, share_done, shown, watch
from outpace.real.slow_workers import SlowWorkers
from outpace.record.totals import Totals
from outpace.record.trace import ITERATION, NONE, SCHEMA


def experiment(workers: int = 2, **changes):
    return experiment_from(
        {
            "task": {"kind": "timing", "parameters": 1000},
            "workers": workers,
            "servers": 2,
            "sync": {"kind": "asp"},
            "stop": {"iterations": 100},
            **changes,
        },
        "the test",
    )


def worker(number: int, iterations: int, sent: int = 0) -> Totals:
    return Totals(
        iterations={number: iterations}, compute=60, communicate=30, wait=10, bytes_sent=sent
    )


def text_of(drawn) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(drawn)
    return console.file.getvalue()


EARLY = Sample(3.0, {"worker-0": worker(0, 10, 1_000_000), "server-0": Totals(applied=20)})
LATE = Sample(
    5.0,
    {
        "worker-0": worker(0, 30, 5_000_000),
        "worker-1": worker(1, 20),
        "server-0": Totals(applied=50, staleness={0: {0: 10, 2: 30}}, bytes_sent=2_000_000),
        "server-1": Totals(staleness={0: {1: 40}}, bytes_sent=2_000_000),
    },
)


def test_the_last_loss_and_accuracy_are_shown():
    last = LATE._replace(quality={"train_loss": 0.51234, "accuracy": 0.9125})
    assert overview(experiment(), last, EARLY).endswith("training loss 0.5123  ·  accuracy 91.2 %")


def test_a_row_says_what_the_worker_reported():
    assert rows(experiment(), LATE, EARLY) == [
        (30, 10, 60.0, 30.0, 10.0, 2.0),
        (20, 0, 60.0, 30.0, 10.0, 0.0),
    ]


def test_a_worker_of_a_run_that_was_scaled_is_as_far_as_the_others():
    """It has computed 20 iterations after the first 10, and worker 0 all of 30."""
    scaled = LATE._replace(not_computed={1: 10})
    assert [row[:2] for row in rows(experiment(), scaled, EARLY)] == [(30, 0), (30, 0)]
    assert share_done(experiment(), scaled) == 0.3


def test_the_line_above_is_about_all():
    assert overview(experiment(), LATE, EARLY) == (
        "5 s  ·  50 gradients (15.0/s)  ·  mean staleness 1.25  ·  servers send 2.0 MB/s"
    )


def test_what_was_done_before_a_restart_counts_too():
    """Worker 1 had done 9 iterations before its process was replaced, all 5 before the checkpoint.

    By hand: 30 + 5 and 20 + 9 + 5 iterations; 50 + 10 gradients, 40 of which since the sample
    before.
    """
    parts = {
        **LATE.totals_of,
        "the run until its checkpoint": Totals(iterations={0: 5, 1: 5}, applied=10),
        "worker-1 before generation 1": Totals(iterations={1: 9}, bytes_sent=10**9),
    }
    found = rows(experiment(), LATE._replace(totals_of=parts), EARLY)
    assert [row[:2] for row in found] == [(35, 1), (34, 0)]
    line = overview(experiment(), LATE._replace(totals_of=parts), EARLY)
    assert "60 gradients (20.0/s)" in line
    assert line.endswith("servers send 2.0 MB/s")


def test_rates_are_not_negative_after_the_run_has_gone_back():
    line = overview(experiment(), EARLY._replace(time_s=6.0), LATE)
    assert "20 gradients (0.0/s)" in line
    assert line.endswith("servers send 0.0 MB/s")


@pytest.mark.parametrize(
    ("stop", "share"),
    [
        ({"iterations": 100}, 0.25),
        ({"virtual_time_s": 20.0}, 0.25),
        ({"iterations": 100, "virtual_time_s": 10.0}, 0.5),
        ({"iterations": 10}, 1.0),
    ],
)
def test_the_share_done(stop, share):
    assert share_done(experiment(stop=stop), LATE) == share


def test_without_a_limit_nobody_knows_the_share():
    aiming = experiment(
        task={"kind": "digits-mlp"}, evaluate={"every_s": 1}, stop={"target_accuracy": 0.9}
    )
    assert share_done(aiming, LATE) is None
    assert "%  " not in text_of(picture(aiming, LATE, EARLY)).splitlines()[0]


def test_the_picture():
    lines = text_of(picture(experiment(), LATE, EARLY)).splitlines()
    assert lines[0].split()[-2:] == ["25", "%"]
    assert lines[2].split() == (
        ["worker", "iteration", "lead", "compute", "%", "communicate", "%", "wait", "%", "MB/s"]
    )
    assert [line.split() for line in lines[3:]] == [
        ["0", "30", "10", "60", "30", "10", "2.0"],
        ["1", "20", "0", "60", "30", "10", "0.0"],
    ]


def test_the_picture_of_a_run_on_several_nodes_names_them():
    nodes = {"worker-0": "one", "worker-1": "two", "server-0": "one"}
    lines = text_of(picture(experiment(), LATE, EARLY, nodes=nodes)).splitlines()
    assert [line.split()[:3] for line in lines[3:]] == [["0", "(one)", "30"], ["1", "(two)", "20"]]


def test_slow_workers_are_named_while_the_run_goes_on():
    """Worker 1 takes 0.13 s where three others take 0.1 s: with barriers 0.03 s per iteration."""
    slow = SlowWorkers(experiment(4, sync={"kind": "bsp"}))
    table = np.full((4, len(SCHEMA)), NONE)
    table[:, 0], table[:, 1] = ITERATION, range(4)
    for iteration in range(20):
        assert slow.line() == "" or iteration > 3
        table[:, 3], table[:, 4] = iteration, iteration * 10**9
        table[:, 6] = table[:, 4] + np.array([100, 130, 100, 100]) * 10**6
        slow.take("trace", table)
    assert slow.line() == "worker 1: 1.3 times as slow as the others, costs about 0.6 s"
    assert "slow: worker 1" in text_of(picture(experiment(), LATE, EARLY, slow.line()))
    survived = "checkpoint 12, 3 s old"
    assert survived in text_of(picture(experiment(), LATE, EARLY, "", survived)).splitlines()
    asynchronous = SlowWorkers(experiment(4))
    asynchronous.take("trace", table)
    assert asynchronous.line() == ""


def test_nothing_reported_yet():
    lines = text_of(picture(experiment(), Sample(0.0, {}), Sample(0.0, {}))).splitlines()
    assert lines[-1].split() == ["1", "0", "0", "0", "0", "0", "0.0"]


def test_many_workers_are_shown_by_quantiles():
    found = [(float(n), 0.0, 0.0, 0.0, 0.0, float(100 - n)) for n in range(101)]
    table = dict(shown(found))
    assert list(table) == ["least", "25 %", "median", "75 %", "most"]
    assert [row[0] for row in table.values()] == [0, 25, 50, 75, 100]
    assert [row[-1] for row in table.values()] == [0, 25, 50, 75, 100]
    assert len(text_of(picture(experiment(500), LATE, EARLY)).splitlines()) < 10


def test_who_is_missing():
    names = ["server-0", "worker-0", "worker-1"]
    assert gathering(names, ["server-0"]).plain.endswith("the others: worker-0, worker-1")
    assert gathering(names, []).plain == "0 of 3 processes have joined; waiting for the others"


@pytest.mark.slow
@pytest.mark.parametrize("terminal", [True, False])
def test_it_is_drawn_on_terminals_only_and_gone_afterwards(terminal):
    console = Console(file=io.StringIO(), force_terminal=terminal, width=100)
    result = run(
        experiment(compute={"kind": "constant", "mean_s": 0.02}, stop={"iterations": 60}),
        watch=lambda engine: watch(engine, console),
    )
    drawn = console.file.getvalue()
    assert result.summary["iterations"] == [60, 60]
    if not terminal:
        assert drawn == ""
    else:
        assert "of 4 processes have joined" in drawn
        assert "mean staleness" in drawn
        assert drawn.endswith("\x1b[2K"), "the last picture is wiped out"
