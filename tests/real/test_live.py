"""The picture in the terminal, as a function of what the processes have reported."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pytest
from rich.console import Console

from outpace.config.reading import experiment_from
from outpace.experiment.running import run
from outpace.real.live import Sample, gathering, overview, picture, shown, watch
from outpace.record.status import CheckpointStatus, ProcessStatus, Status
from outpace.record.totals import Totals


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


def worker(sent: int = 0) -> Totals:
    return Totals(compute=60, communicate=30, wait=10, bytes_sent=sent)


def status(done: Sequence[int] = (30, 20), servers: int = 2, **changes: Any) -> Status:
    """The status of a run whose workers have completed so many iterations."""
    processes = [ProcessStatus(name=f"server-{n}", state="training") for n in range(servers)]
    processes += [
        ProcessStatus(name=f"worker-{n}", state="training", iteration=iteration)
        for n, iteration in enumerate(done)
    ]
    known: dict[str, Any] = {"command": "run", "process": 1, "host": "", "since": 0.0, "at": 0.0}
    known |= {"phase": "training", "gradients": 50, "gradients_per_s": 15.0} | changes
    return Status(processes=processes, **known)


def text_of(drawn) -> str:
    console = Console(file=io.StringIO(), width=140)
    console.print(drawn)
    return console.file.getvalue()


EARLY = Sample(3.0, {"worker-0": worker(1_000_000)})
LATE = Sample(
    5.0,
    {
        "worker-0": worker(5_000_000),
        "worker-1": worker(),
        "server-0": Totals(staleness={0: {0: 10, 2: 30}}, bytes_sent=2_000_000),
        "server-1": Totals(staleness={0: {1: 40}}, bytes_sent=2_000_000),
    },
)


def test_the_line_above_is_about_all():
    assert overview(status(), LATE, EARLY) == (
        "5 s  ·  50 gradients (15.0/s)  ·  mean staleness 1.25  ·  servers send 2.0 MB/s"
    )
    alone = overview(status(servers=0, gradients_per_s=None), LATE, EARLY)
    assert alone == "5 s  ·  50 gradients  ·  mean staleness 1.25  ·  workers send 2.0 MB/s"


def test_the_picture():
    lines = text_of(picture(status(share=0.25), LATE, EARLY)).splitlines()
    assert lines[0].split()[-2:] == ["25", "%"]
    assert lines[2].split() == (
        ["worker", "iteration", "lead", "compute", "%", "communicate", "%", "wait", "%", "MB/s"]
    )
    assert [line.split() for line in lines[3:]] == [
        ["0", "30", "10", "60", "30", "10", "2.0"],
        ["1", "20", "0", "60", "30", "10", "0.0"],
    ]
    assert "%  " not in text_of(picture(status(), LATE, EARLY)).splitlines()[0]


def test_checkpoints_restarts_and_what_is_awaited_are_shown():
    checkpoints = CheckpointStatus(number=12, time_s=2.0, failure="the disk is full")
    known = status(
        time_s=5.0, checkpoints=checkpoints, restarts=2, updates_lost=3, waits_for="worker-1"
    )
    survived = (
        "checkpoint 12, 3 s old  ·  the last one could not be written  ·  2 restarts  ·  "
        "3 updates lost  ·  waits for worker-1"
    )
    assert survived in " ".join(text_of(picture(known, LATE, EARLY)).splitlines())


def test_many_workers_are_shown_by_quantiles():
    found = [(float(n), 0.0, 0.0, 0.0, 0.0, float(100 - n)) for n in range(101)]
    table = dict(shown(found))
    assert list(table) == ["least", "25 %", "median", "75 %", "most"]
    assert [row[0] for row in table.values()] == [0, 25, 50, 75, 100]
    assert [row[-1] for row in table.values()] == [0, 25, 50, 75, 100]
    assert len(text_of(picture(status([0] * 500), LATE, EARLY)).splitlines()) < 10


def test_who_is_missing():
    known = status(servers=1)
    for process in known.processes:
        process.state = "missing"
    assert gathering(known).plain == "0 of 3 processes have joined; waiting for the others"
    known.processes[0].state = "joined"
    assert gathering(known).plain.endswith("the others: worker-0, worker-1")


@pytest.mark.slow
def test_it_is_drawn_on_a_terminal_and_gone_afterwards():
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    result = run(
        experiment(compute={"kind": "constant", "mean_s": 0.02}, stop={"iterations": 60}),
        watch=lambda engine: watch(engine, console),
    )
    drawn = console.file.getvalue()
    assert result.summary["iterations"] == [60, 60]
    assert "of 4 processes have joined" in drawn
    assert "mean staleness" in drawn
    assert drawn.endswith("\x1b[2K"), "the last picture is wiped out"
