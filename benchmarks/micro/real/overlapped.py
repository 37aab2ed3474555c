"""Steps of a real run that pushes during backward, beside the same run that pushes after it.

25 MB in six layers, BSP, 2 workers, 2 servers, keys. *Computed elsewhere*: a law of run times makes
each gradient take 100 ms, in which the processor is free, as with a GPU. *Computed here*: on the
cores that servers and messages need, too; then there is less to gain.
"""

from __future__ import annotations

import itertools
import statistics
from functools import partial
from pathlib import Path
from typing import Any

import torch
from benchmarks.micro.harness import Measurement, in_turn, ratio

import outpace
from outpace.experiment.running import run

_WIDE, _NARROW = 1024, 64


def measure(quick: bool, repetitions: int) -> list[Measurement]:
    """Return the rows, each a ratio of times with overlap and without."""
    steps = 4 if quick else 15
    pause = {"compute": {"kind": "constant", "mean_s": 0.02 if quick else 0.1}}
    elsewhere: dict[str, Any] = {"batch_size": 1, **pause}
    programs = [
        partial(step_s, steps, quick=quick, overlap=overlap, **changes)
        for changes in (elsewhere, {"batch_size": 64})
        for overlap in (True, False)
    ]
    found = in_turn(programs, repetitions)
    size = "0.1 MB" if quick else "25 MB"

    def row(where: str, overlapped: list[float], plain: list[float]) -> Measurement:
        name = f"BSP step of {size} in 6 layers, 2 x 2, computed {where}: with overlap / without"
        return ratio(name, overlapped, plain, at_least=False, note=_times)

    return [row("elsewhere", *found[:2]), row("here", *found[2:])]


def step_s(steps: int, *, quick: bool, overlap: bool, **changes: Any) -> float:
    """Return the median seconds of the steps of worker 0, without the first half of them."""
    result = run(
        {
            "task": {
                "kind": "python",
                "target": f"{Path(__file__).resolve()}:make",
                "arguments": {"width": _NARROW if quick else _WIDE},
            },
            "workers": 2,
            "servers": 2,
            "sync": {"kind": "bsp"},
            "non_finite": "stop",
            "overlap": "backward" if overlap else "none",
            "probe": False,
            "stop": {"iterations": 2 * steps},
            **changes,
        },
        log=lambda _: None,
    )
    rows = result.trace.to_pylist()
    ends = [row["end_ns"] for row in rows if row["event"] == "iteration" and row["worker"] == 0]
    laps = [after - before for before, after in itertools.pairwise(sorted(ends))]
    return statistics.median(laps[steps:]) / 1e9


def make(width: int) -> outpace.Task:
    """Return a task with six layers of width x width."""
    inputs = torch.randn(256, width)
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width, bias=False) for _ in range(6)))
    return outpace.Task(
        model=model, loss=torch.nn.functional.mse_loss, train=(inputs, inputs), test=None
    )


def _times(above: float, below: float) -> str:
    return f"{above * 1e3:.1f} and {below * 1e3:.1f} ms"
