"""Iterations of `outpace run` whose gradients cost nothing, compared with copies of memory."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from benchmarks.rows import Row, host_seconds, in_turn, ratio, times_note

_TASK: Final = f"{Path(__file__).parents[1] / 'steps.py'}:make_task"
_COPIES: Final = 20


def installed(
    elements: int, iterations: int, repetitions: int, workers: int, servers: int, goal: float
) -> Row:
    """Measure the time of an iteration, divided by the time of a copy of the parameters."""
    ours, copies = in_turn(
        [
            partial(seconds_of_iteration, elements, iterations, workers, servers),
            partial(seconds_of_copy, elements),
        ],
        repetitions,
    )
    processes = f"{workers} worker{'s' * (workers > 1)}, {servers} server{'s' * (servers > 1)}"
    per_worker = [seconds / workers for seconds in ours]
    return ratio(
        f"outpace run, {elements * 4 / 1e6:g} MB, {processes}: an iteration / a copy of memory"
        + (", for each worker" if workers > 1 else ""),
        per_worker,
        copies,
        goal=goal,
        note=times_note,
    )


def of_adam(elements: int, iterations: int, repetitions: int) -> list[Row]:
    """Compare the time of an iteration with Adam, plain and fused, with the time with SGD."""
    adam = {"kind": "adam", "lr": 0.001}
    optimizers = [None, adam, {**adam, "fused": True}]
    sgd, *others = in_turn(
        [
            partial(seconds_of_iteration, elements, iterations, 1, 1, optimizer)
            for optimizer in optimizers
        ],
        repetitions,
    )
    return [
        ratio(
            f"outpace run, {elements * 4 / 1e6:g} MB, 1 worker, 1 server: {name} / SGD",
            taken,
            sgd,
            goal=1.5,
            note=times_note,
        )
        for name, taken in zip(("Adam", "Adam, fused"), others, strict=True)
    ]


def seconds_of_copy(elements: int) -> float:
    """Return the median seconds of a copy of this many float32 from one tensor to another."""
    source, target = torch.ones(elements), torch.zeros(elements)

    def copy() -> None:
        target.copy_(source)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        copy()
        return statistics.median(host_seconds(copy) for _ in range(_COPIES))
    finally:
        torch.set_num_threads(threads)


def seconds_of_iteration(
    elements: int,
    iterations: int,
    workers: int,
    servers: int,
    optimizer: Mapping[str, Any] | None = None,
) -> float:
    """Return the seconds of an iteration of BSP, of a run by the command as it is installed.

    optimizer: its configuration; None: SGD.
    """
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "config.yaml")
        settings = {
            "task": {"kind": "python", "target": _TASK, "arguments": {"elements": elements}},
            "workers": workers,
            "servers": servers,
            "batch_size": 1,
            "sync": {"kind": "bsp"},
            "stop": {"iterations": iterations},
            **({} if optimizer is None else {"optimizer": dict(optimizer)}),
        }
        config.write_text(json.dumps(settings), "utf-8")
        command = ["-m", "outpace", "run", str(config), "--out", f"{folder}/run", "--json", "-q"]
        done = subprocess.run(
            [sys.executable, *command], check=True, stdout=subprocess.PIPE, text=True
        )
        return float(json.loads(done.stdout)["wall_time_s"]) / iterations
