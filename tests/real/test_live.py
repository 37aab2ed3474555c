"""The picture in the terminal for a given status of a run."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from outpace.experiment.running import run
from outpace.real.live import picture, watch
from outpace.record.status import CheckpointStatus, Status


def text_of(**changes: Any) -> list[str]:
    known: dict[str, Any] = {"command": "run", "process": 1, "host": "", "since": 0.0, "at": 0.0}
    status = Status(**{**known, "phase": "training", "time_s": 5.0, "gradients": 50, **changes})
    console = Console(file=io.StringIO(), width=140)
    console.print(picture(status, {"train_loss": 0.25, "accuracy": 0.5}))
    return console.file.getvalue().splitlines()


def test_the_picture_says_how_far_the_run_is_what_it_has_survived_and_what_it_waits_for():
    progress = "training loss 0.25  ·  accuracy 50.0 %"
    assert text_of()[-1] == f"5 s  ·  50 gradients  ·  {progress}"
    checkpoints = CheckpointStatus(number=12, time_s=2.0, failure="the disk is full")
    lines = text_of(
        share=0.25,
        gradients_per_s=15.0,
        checkpoints=checkpoints,
        restarts=2,
        updates_lost=3,
        waits_for="worker-1",
    )
    assert lines[0].split()[-2:] == ["25", "%"]
    assert lines[1:] == [
        f"5 s  ·  50 gradients (15.0/s)  ·  {progress}",
        "checkpoint 12, 3 s old  ·  the last one could not be written  ·  2 restarts  ·  "
        "3 updates lost  ·  waits for worker-1",
    ]


@pytest.mark.slow
def test_it_is_drawn_on_a_terminal_and_gone_afterwards():
    """The run also says what it ignores of virtual time."""
    said: list[str] = []
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    result = run(
        {
            "task": {"kind": "timing", "parameters": 1000},
            "workers": 2,
            "servers": 2,
            "sync": {"kind": "asp"},
            "compute": {"kind": "measured"},
            "colocate": True,
            "stop": {"iterations": 1000},
        },
        watch=lambda engine: watch(engine, console),
        log=said.append,
    )
    (line,) = said
    assert line.endswith(": colocate, compute")
    drawn = console.file.getvalue()
    assert result.summary["iterations"] == [1000, 1000]
    assert " gradients" in drawn
    assert drawn.endswith("\x1b[2K"), "the last picture is wiped out"
