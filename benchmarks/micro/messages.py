"""Host time per simulated message, how it grows with the workers, and memory."""

from __future__ import annotations

import gc
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.micro.harness import Measurement, in_turn, value

from outpace.experiment import simulate

SERVERS = 8


def measure(quick: bool) -> list[Measurement]:
    messages, repetitions = (60_000, 3) if quick else (250_000, 5)
    sizes = (32, 128, 512, 1024)
    microseconds_per_message(512, 1)

    def per_message(workers: int) -> Callable[[], float]:
        iterations = max(1, messages // (3 * SERVERS * workers))
        return lambda: microseconds_per_message(workers, iterations)

    columns = in_turn([per_message(size) for size in sizes], repetitions)
    times = dict(zip(sizes, columns, strict=True))
    medians = {size: statistics.median(values) for size, values in times.items()}
    flatness = [
        max(row) / min(row) for row in zip(*times.values(), strict=True)
    ]  # of each repetition
    listed = ", ".join(f"{size}: {median:.1f}" for size, median in medians.items())
    return [
        value("timing, 512 workers, 8 servers, per message", times[512], unit="µs", goal=25),
        value(
            "the same by workers, slowest / fastest",
            flatness, unit="x", goal=1.5, note=f"µs by workers: {listed}",
        ),
        memory(quick),
    ]  # fmt: skip


def memory(quick: bool) -> Measurement:
    """Peak resident memory of a long run less that of a short one, in processes of their own."""
    short, long = 50, 200
    grown = [peak_megabytes(long) - peak_megabytes(short) for _ in range(1 if quick else 3)]
    return value(
        f"peak memory, 64 workers, {long} less {short} iterations", grown, unit="MB", goal=5
    )


def microseconds_per_message(workers: int, iterations: int) -> float:
    gc.collect()
    with tempfile.TemporaryDirectory() as folder:
        result = simulate(
            {
                "task": {"kind": "timing", "parameters": 100_000},
                "workers": workers,
                "servers": SERVERS,
                "compute": {"kind": "lognormal", "mean_s": 0.1, "cv": 0.2},
                "sync": {"kind": "ssp", "staleness": 3},
                "network": {"latency_s": 0.001, "bandwidth_bytes_per_s": 1.25e8},
                "stop": {"iterations": iterations},
            },
            Path(folder) / "run",
        )
    return float(result.summary["simulated_in_s"]) / result.summary["messages"] * 1e6


_PEAK = """
import re, sys
from benchmarks.micro.messages import microseconds_per_message
microseconds_per_message(64, int(sys.argv[1]))
# Not ru_maxrss: that counts what the parent had when it started this process.
print(int(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1]) / 1024)
"""


def peak_megabytes(iterations: int) -> float:
    done = subprocess.run(
        [sys.executable, "-c", _PEAK, str(iterations)], check=True, capture_output=True, text=True
    )
    return float(done.stdout)
