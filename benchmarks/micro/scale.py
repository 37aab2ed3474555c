"""Large runs: host time per message, and memory."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.micro.messages import peak_megabytes, printed_in_a_process
from benchmarks.rows import Row, row

from outpace.experiment.running import simulate


def measure(quick: bool) -> list[Row]:
    workers, servers, iterations, training = (64, 8, 1, 8) if quick else (4096, 64, 3, 1024)
    microseconds, megabytes = printed_in_a_process(
        f"scale.timing({workers}, {servers}, {iterations})"
    )
    _, training_megabytes = printed_in_a_process(f"scale.gradients({training})")
    return [
        row(
            f"timing, {workers:,} workers, {servers} servers, {iterations} iteration(s), "
            "per message",
            [microseconds],
            unit="µs",
            goal=25,
            note=f"peak memory {megabytes:.0f} MB",
        ),
        row(
            f"digits-cnn, {training:,} workers, ASP, 2 iterations: peak memory",
            [training_megabytes],
            unit="MB",
            goal=4096,
        ),
    ]


def timing(workers: int, servers: int, iterations: int) -> None:
    task = {"kind": "timing", "parameters": 1_000_000}
    _run(task, workers, servers, iterations, {"kind": "ssp", "staleness": 3})


def gradients(workers: int) -> None:
    _run({"kind": "digits-cnn"}, workers, 4, 2, {"kind": "asp"})


def _run(
    task: dict[str, Any], workers: int, servers: int, iterations: int, sync: dict[str, Any]
) -> None:
    """Simulate, and print microseconds per message and peak memory in MB."""
    started = time.perf_counter()
    summary = simulate(
        {
            "task": task,
            "workers": workers,
            "servers": servers,
            "compute": {"kind": "lognormal", "mean_s": 1.0, "cv": 0.2},
            "sync": sync,
            "network": {"latency_s": 0.001, "bandwidth_bytes_per_s": 1.25e9},
            "stop": {"iterations": iterations},
        }
    ).summary
    seconds = time.perf_counter() - started  # with all that is built before the run
    print(seconds / summary["messages"] * 1e6, peak_megabytes())
