"""Host time per simulated message, how it grows with the workers, and memory."""

from __future__ import annotations

import gc
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.micro.harness import Measurement, in_turn, value

from outpace.experiment.running import simulate

SERVERS = 8
SHORT, LONG = 50, 200  # iterations


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
            flatness,
            unit="x",
            goal=1.5,
            note=f"µs by workers: {listed}",
        ),
        *memory(quick),
    ]


def memory(quick: bool) -> list[Measurement]:
    """Growth of the peak resident memory, in processes of their own."""
    runs = [peaks_in_megabytes() for _ in range(1 if quick else 3)]
    iterations = f"64 workers, from {SHORT} to {LONG} iterations"
    return [
        value(
            f"peak memory, {iterations}",
            [long - short for short, long, _ in runs],
            unit="MB",
            goal=5,
        ),
        value(
            f"the report on those {LONG} iterations, beyond that",
            [with_report - long for _, long, with_report in runs],
            unit="MB",
        ),
    ]


def microseconds_per_message(
    workers: int, iterations: int, progress: Callable[[float], None] | None = None
) -> float:
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
            progress=progress,
        )
    return float(result.summary["simulated_in_s"]) / result.summary["messages"] * 1e6


def peaks_in_megabytes() -> list[float]:
    """Of a process: after SHORT and LONG iterations, and after the report on them."""
    code = "from benchmarks.micro.messages import print_peaks; print_peaks()"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return [float(word) for word in done.stdout.split()]


def print_peaks() -> None:
    peaks: dict[int, float] = {}

    def progress(share: float) -> None:
        for limit in (SHORT, LONG):
            if share <= limit / LONG:
                peaks[limit] = peak_megabytes()

    microseconds_per_message(64, 2)
    microseconds_per_message(64, LONG, progress)
    print(peaks[SHORT], peaks[LONG], peak_megabytes())


def peak_megabytes() -> float:
    """Not ru_maxrss, which counts what the parent had when it started this process."""
    status = Path("/proc/self/status").read_text()
    match = re.search(r"VmHWM:\s*(\d+) kB", status)
    assert match, "needs Linux"
    return int(match[1]) / 1024
