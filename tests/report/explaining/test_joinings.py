"""Workers without servers that are late at an all-reduce, by their activity before it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import outpace
from outpace.record import folder as files
from outpace.report.explaining import explained

ROWS = 30
COMPUTE_S, SLEEP_S = 0.01, 0.12


def trained(folder, sleeps):
    """Write a run of 3 workers with `ssgd`, in which worker 1 also sleeps for 0.12 s.

    Args:
        sleeps: `backward`: it sleeps while it computes its gradient, before its first bucket is
            ready. `step`: it sleeps after the all-reduce of each iteration. `own`: it sleeps after
            that, before an all-reduce of the script itself, with which the next iteration begins.
    """
    data = {
        "task": {"kind": "timing", "parameters": 10},
        "workers": 3,
        "sync": {"kind": "ssgd"},
        "compute": {"kind": "constant", "mean_s": COMPUTE_S},
        "stop": {"iterations": ROWS},
    }
    outpace.simulate(data, folder)
    table = pq.read_table(folder / files.TRACE)
    rows, free = [], np.zeros(3)

    def add(event, worker, iteration, start, computed, end):
        row = dict.fromkeys(table.column_names)
        times = {"start_ns": start, "computed_ns": computed, "end_ns": end}
        row |= {name: round(1e9 * time) for name, time in times.items()}
        rows.append(row | {"event": event, "worker": worker, "iteration": iteration, "held_ns": 0})
        if event != "iteration":
            rows[-1]["version"] = iteration

    slept = SLEEP_S * (np.arange(3) == 1)
    for iteration in range(ROWS):
        began = free
        if sleeps == "own":
            arrived = free + slept
            for worker in range(3):
                add("collective", worker, iteration, arrived[worker], *[arrived.max()] * 2)
            free = np.full(3, arrived.max())
            began = free - slept  # the time in a collective is not the iteration's
        computed = free + COMPUTE_S + slept * (sleeps == "backward")
        done = computed.max()
        free = done + slept * (sleeps == "step")
        for worker in range(3):
            add("all-reduce", worker, iteration, computed[worker], done, done)
            add("iteration", worker, iteration, began[worker], computed[worker], free[worker])
    pq.write_table(pa.Table.from_pylist(rows, table.schema), folder / files.TRACE)


@pytest.mark.parametrize("sleeps", ["backward", "step", "own"])
def test_whatever_a_worker_does_before_the_others_wait_for_it_is_its_own_time(tmp_path, sleeps):
    trained(tmp_path / "run", sleeps)
    (cause,) = explained(tmp_path / "run").causes
    assert (cause.name, cause.pattern) == ("worker 1", "steady")
    waited = (ROWS - 1 if sleeps == "step" else ROWS) * SLEEP_S  # nobody waits for the last step
    assert cause.lost_s == pytest.approx(waited, rel=0.1)
