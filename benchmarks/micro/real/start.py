"""The seconds until all processes of a run are ready."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from typing import Any
from unittest import mock

from benchmarks.micro.real.processes import between

from outpace.experiment.running import run
from outpace.real.run import RealRun
from outpace.support.processes import forking

PHASES = ("task, fork server", "forks", "servers join", "workers join", "ready")


def seconds_to_start(repetitions: int, workers: int, servers: int) -> tuple[list[float], str]:
    """Start a run from new processes; return the seconds of each, and the phases in words."""
    call = f"print_phases({workers}, {servers})"
    code = f"from benchmarks.micro.real.start import print_phases; {call}"
    rows = []
    for _ in range(repetitions):
        done = subprocess.run(
            [sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True
        )
        rows.append([float(word) for word in done.stdout.split()])
    columns = zip(PHASES, zip(*rows, strict=True), strict=True)
    words = [f"{phase} {statistics.median(seconds):.2f}" for phase, seconds in columns]
    return [sum(row) for row in rows], ", ".join(words)


def print_phases(workers: int, servers: int) -> None:
    """Print the seconds of each phase, from when the launcher has imported everything."""
    stamps = [time.monotonic()]
    forks: list[float] = []
    runs: list[RealRun] = []
    begin = forking.start

    def start(*arguments: Any) -> Any:
        process = begin(*arguments)
        forks.append(time.monotonic())
        return process

    def watch(run: RealRun) -> None:
        runs.append(run)
        coordinator = run.coordinator

        async def look() -> None:
            for names in (coordinator.servers, coordinator.workers):
                while not coordinator.state.joined.keys() >= set(names):
                    await coordinator.kernel.sleep(0.002)
                stamps.append(time.monotonic())

        coordinator.kernel.spawn(look(), daemon=True)

    with mock.patch.object(forking, "start", start):
        experiment = {
            "task": {"kind": "digits-cnn"},
            "workers": workers,
            "servers": servers,
            "sync": {"kind": "bsp"},
            "stop": {"iterations": 1},
        }
        run(experiment, watch=watch)
    stamps[1:1] = forks[0], forks[-1]
    stamps.append(runs[0].coordinator.clock.origin / 1e9)
    print(*between(stamps))
