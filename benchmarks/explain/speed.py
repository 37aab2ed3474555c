"""The cost of looking for slow workers while a run is running."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from outpace.config.reading import experiment_from
from outpace.real.slowness import SlowWorkers
from outpace.record.trace import ITERATION, NONE, SCHEMA, Table


def per_iteration_s(workers: int, iterations: int = 2000, repeats: int = 5) -> list[float]:
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
