"""Runs as large as anybody asked for: host time per message, and memory."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

from benchmarks.micro.harness import Measurement, value
from benchmarks.micro.messages import peak_megabytes

from outpace.experiment.running import simulate


def measure(quick: bool) -> list[Measurement]:
    iterations = 1 if quick else 3
    microseconds, megabytes = _in_a_process(f"timing({iterations})")
    _, of_gradients = _in_a_process("gradients(2)")
    return [
        value(
            f"timing, 4,096 workers, 64 servers, {iterations} iteration(s), per message",
            [microseconds],
            unit="µs",
            goal=25,
            note=f"peak memory {megabytes:.0f} MB",
        ),
        value(
            "digits-cnn, 1,024 workers, ASP, 2 iterations: peak memory",
            [of_gradients],
            unit="MB",
            goal=4096,
        ),
    ]


def _in_a_process(call: str) -> tuple[float, float]:
    """Of its own, for the memory: (µs per message, peak in MB)."""
    code = f"from benchmarks.micro import scale; scale.{call}"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    microseconds, megabytes = (float(word) for word in done.stdout.split())
    return microseconds, megabytes


def timing(iterations: int) -> None:
    _run({"kind": "timing", "parameters": 1_000_000}, 4096, 64, iterations, "ssp")


def gradients(iterations: int) -> None:
    _run({"kind": "digits-cnn"}, 1024, 4, iterations, "asp")


def _run(task: dict[str, Any], workers: int, servers: int, iterations: int, sync: str) -> None:
    started = time.perf_counter()
    summary = simulate(
        {
            "task": task,
            "workers": workers,
            "servers": servers,
            "compute": {"kind": "lognormal", "mean_s": 1.0, "cv": 0.2},
            "sync": {"kind": sync, **({"staleness": 3} if sync == "ssp" else {})},
            "network": {"latency_s": 0.001, "bandwidth_bytes_per_s": 1.25e9},
            "stop": {"iterations": iterations},
        }
    ).summary
    seconds = time.perf_counter() - started  # with everything that is built before
    print(seconds / summary["messages"] * 1e6, peak_megabytes())
