"""The cost of looking for slow workers while a run is running."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from benchmarks.parts import Cells

from outpace.config.reading import experiment_from
from outpace.real.slowness import SlowWorkers
from outpace.record.tables import NONE, Table
from outpace.record.trace import ITERATION, SCHEMA

ITERATION_S: Final = 0.05  # a short iteration, whose 0.5 % is the goal
SHARE: Final = 0.005


def speed(sizes: Sequence[int], iterations: int, repeats: int) -> list[Cells]:
    """Return the processor time that an iteration costs, by workers."""
    rows = []
    for workers in sizes:
        times_s = per_iteration_s(workers, iterations, repeats)
        median_s = statistics.median(times_s)
        rows.append(
            {
                "workers": workers,
                "median, all workers": f"{1e6 * median_s:.0f} µs",
                "extremes": f"{1e6 * min(times_s):.0f} to {1e6 * max(times_s):.0f} µs",
                f"of {1e3 * ITERATION_S:.0f} ms": f"{100 * median_s / ITERATION_S:.2f} %",
                "goal": f"{100 * SHARE:.1f} %",
                "met": median_s <= SHARE * ITERATION_S,
            }
        )
    return rows


def per_iteration_s(workers: int, iterations: int, repeats: int) -> list[float]:
    """Return the seconds of CPU that an iteration of all workers costs, for each repetition.

    One worker is slow from the begin, another one in bursts. Rows come as in a real run,
    those of a quarter of a second together, and a line for the picture is made of them.
    """
    found = []
    for seed in range(repeats):
        data = {
            "task": {"kind": "timing"},
            "workers": workers,
            "sync": {"kind": "bsp"},
            "stop": {"iterations": 1},
        }
        slow = SlowWorkers(experiment_from(data, "the benchmark"))
        tables = list(_tables(workers, iterations, seed))
        begun = time.process_time()
        for table in tables:
            slow.take("trace", table)
            slow.line()
        found.append((time.process_time() - begun) / iterations)
    return found


def _tables(workers: int, iterations: int, seed: int) -> Iterator[Table]:
    source = np.random.default_rng(seed)
    times = source.lognormal(np.log(0.1), 0.05, (iterations, workers))
    times[:, 1] *= 1.3
    for begin in range(100, iterations, 200):
        times[begin : begin + 30, 2] *= 2
    names = SCHEMA.names
    for first in range(0, iterations, 3):
        rows = times[first : first + 3]
        table = np.full((rows.size, len(names)), NONE)
        table[:, names.index("event")] = ITERATION
        table[:, names.index("worker")] = np.tile(np.arange(workers), len(rows))
        numbers = np.repeat(np.arange(first, first + len(rows)), workers)
        table[:, names.index("iteration")] = numbers
        table[:, names.index("start_ns")] = numbers * 10**8
        table[:, names.index("computed_ns")] = numbers * 10**8 + (rows.ravel() * 1e9).astype(int)
        yield table
