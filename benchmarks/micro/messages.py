"""Host time per simulated message, its growth with the workers, and memory.

The time per message is also given in timeouts of SimPy, taken in turn: how long SimPy needs for one
of 64 processes to sleep and wake up. That ratio depends less on the machine.
"""

from __future__ import annotations

import gc
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.micro.kernel import simpy_timeouts
from benchmarks.rows import Row, host_seconds, in_turn, ratio, row

from outpace.experiment.running import simulate

SERVERS = 8


def measure(quick: bool) -> list[Row]:
    messages, repetitions = (10_000, 1) if quick else (250_000, 5)
    sizes = (32, 512) if quick else (32, 128, 512, 1024)
    microseconds_per_message(512, 1)

    def per_message(workers: int) -> Callable[[], float]:
        iterations = max(1, messages // (3 * SERVERS * workers))
        return lambda: microseconds_per_message(workers, iterations)

    timeout = partial(_microseconds_per_timeout, 200 if quick else 2000)
    timeouts, *columns = in_turn([timeout, *map(per_message, sizes)], repetitions)
    times = dict(zip(sizes, columns, strict=True))
    medians = {size: statistics.median(values) for size, values in times.items()}
    flatness = [max(each) / min(each) for each in zip(*times.values(), strict=True)]
    listed = ", ".join(f"{size}: {median:.1f}" for size, median in medians.items())
    return [
        row("timing, 512 workers, 8 servers, per message", times[512], unit="µs", goal=25),
        ratio(
            "timing, 512 workers, 8 servers: a message / a SimPy timeout",
            times[512],
            timeouts,
            goal=4.2,
            note=lambda message, timeout: f"{message:.1f} µs, SimPy {timeout:.2f} µs",
        ),
        row(
            "timing, 8 servers, per message: slowest / fastest number of workers",
            flatness,
            unit="x",
            goal=1.5,
            note=f"µs by workers: {listed}",
        ),
        _fair(quick),
        *memory(quick),
    ]


def _fair(quick: bool) -> Row:
    """Measure a message with fair contention, while all connections of the servers are full."""
    iterations, repetitions = (1, 1) if quick else (4, 3)
    workers = 512
    return row(
        f"fair, {workers} workers, {SERVERS} servers, saturated, per message",
        [
            microseconds_per_message(workers, iterations, contention="fair")
            for _ in range(repetitions)
        ],
        unit="µs",
        note=f"{iterations} iteration(s)",
    )


def _microseconds_per_timeout(steps: int) -> float:
    """Return the time of one of SimPy's timeouts, with 64 processes."""
    return host_seconds(partial(simpy_timeouts, steps)) / (64 * steps) * 1e6


def memory(quick: bool) -> list[Row]:
    """Measure the growth of the peak resident memory, in new processes."""
    short, long, repetitions = (5, 15, 1) if quick else (50, 200, 3)
    runs = [_peaks_in_megabytes(short, long) for _ in range(repetitions)]
    iterations = f"64 workers, from {short} to {long} iterations"
    return [
        row(
            f"peak memory, {iterations}",
            [after - before for before, after, _ in runs],
            unit="MB",
            goal=5,
        ),
        row(
            f"peak memory of the report on {long} iterations, beyond that",
            [with_report - after for _, after, with_report in runs],
            unit="MB",
        ),
    ]


def microseconds_per_message(
    workers: int,
    iterations: int,
    progress: Callable[[float], None] | None = None,
    *,
    contention: str = "serialised",
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
                "network": {
                    "latency_s": 0.001,
                    "bandwidth_bytes_per_s": 1.25e8,
                    "contention": contention,
                },
                "stop": {"iterations": iterations},
            },
            Path(folder) / "run",
            progress=progress,
        )
    return float(result.summary["simulated_in_s"]) / result.summary["messages"] * 1e6


def _peaks_in_megabytes(short: int, long: int) -> list[float]:
    """Return the peaks of a process after short and long runs, and after the report."""
    return printed_in_a_process(f"messages.print_peaks({short}, {long})")


def printed_in_a_process(call: str) -> list[float]:
    """Return the numbers that a call of `messages` or `scale` prints, in a new process."""
    code = f"from benchmarks.micro import messages, scale; {call}"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return [float(word) for word in done.stdout.split()]


def print_peaks(short: int, long: int) -> None:
    peaks: dict[int, float] = {}

    def progress(share: float) -> None:
        for limit in (short, long):
            if share <= limit / long:
                peaks[limit] = peak_megabytes()

    microseconds_per_message(64, 2)
    microseconds_per_message(64, long, progress)
    print(peaks[short], peaks[long], peak_megabytes())


def peak_megabytes() -> float:
    """Return the peak resident memory of this process. Linux only.

    ru_maxrss would count the memory of the parent at the start of this process.
    """
    status = Path("/proc/self/status").read_text()
    match = re.search(r"VmHWM:\s*(\d+) kB", status)
    assert match
    return int(match[1]) / 1024
