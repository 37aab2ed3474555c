"""The time that a run on a cluster takes to start, beside an empty actor of Ray and a local run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.cluster.nodes import one_node
from benchmarks.failures.recovery import until_training
from benchmarks.rows import Row, row

GOAL_S = 10.0
_ACTOR = """
import sys, ray

@ray.remote
class Empty:
    def answer(self):
        return 1

ray.init(address=sys.argv[1], log_to_driver=False)
print(ray.get(Empty.remote().answer.remote()))
"""
_CONFIG = {
    "task": {"kind": "digits-mlp"},
    "workers": 2,
    "servers": 1,
    "sync": {"kind": "bsp"},
    "compute": {"kind": "constant", "mean_s": 0.05},
    "checkpoint": {"every_updates": 2},  # a start is over when there is one after the training
    "probe": False,
    "stop": {"iterations": 1_000_000},
}


def start(out: Path, say: Callable[[str], object], rounds: int) -> list[Row]:
    """Return the seconds from a command to the answer of an actor, and to the training of a run.

    Each round has one of each, one after the other, on a cluster that is up.
    """
    file = out / "config.json"
    file.write_text(json.dumps(_CONFIG), encoding="utf-8")
    actors, local, on_ray = [], [], []
    with one_node(cpus=4) as cluster:
        for number in range(rounds):
            say(f"round {number + 1} of {rounds}: an actor, a local run, a run on Ray")
            actors.append(_actor_s(cluster.address))
            local.append(_run_s(file, out / f"local-{number}", []))
            there = ["--launcher", "ray", "--address", cluster.address]
            on_ray.append(_run_s(file, out / f"ray-{number}", there))
    more = [run - actor for run, actor in zip(on_ray, actors, strict=True)]
    beside = [run - here for run, here in zip(on_ray, local, strict=True)]
    what = "2 workers and a server on Ray"
    return [
        row("an empty actor of Ray, from the command to its answer", actors, unit="s"),
        row(
            "2 workers and a server without Ray, from the command to the training", local, unit="s"
        ),
        row(f"{what}, from the command to the training", on_ray, unit="s"),
        row(f"{what}, beside an empty actor", more, unit="s", goal=GOAL_S),
        row(f"{what}, beside the same without Ray", beside, unit="s"),
    ]


def _actor_s(address: str) -> float:
    # Ray takes another address of the machine for the loopback address unless told otherwise.
    environment = {**os.environ, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    command = [sys.executable, "-c", _ACTOR, address]
    begun = time.monotonic()
    subprocess.run(command, check=True, capture_output=True, env=environment, timeout=120)
    return time.monotonic() - begun


def _run_s(file: Path, folder: Path, options: Sequence[str]) -> float:
    return until_training(["run", str(file), *options, "--out", str(folder)], folder, 1)
