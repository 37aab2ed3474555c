"""Run times of released training jobs."""

from __future__ import annotations

import numpy as np
from benchmarks.released_jobs import COLUMNS, read_alibaba, read_bytedance
from tests.support.tables import assert_same, table

# Two ranks of two stages, step 7 with two micro-batches and step 3 with one.
ROWS = [
    (rank, step, batch, f"{way}-compute", seconds)
    for rank, step, batch, forward, backward in [
        *[(0, 7, 0, 0.25, 0.5), (0, 7, 0, 0.25, 0.5), (1, 7, 0, 1.0, 2.0), (1, 7, 0, 1.0, 2.0)],
        *[(0, 7, 1, 0.5, 0.5), (0, 7, 1, 0.5, 0.5), (1, 7, 1, 0.5, 1.0), (1, 7, 1, 0.5, 1.0)],
        *[(0, 3, 0, 2.0, 4.0), (0, 3, 0, 2.0, 4.0), (1, 3, 0, 1.0, 1.0), (1, 3, 0, 1.0, 1.0)],
    ]
    for way, seconds in (("forward", forward), ("backward", backward))
]
OTHERS = [(0, 3, -1, "grads-reduce-scatter", 50.0), (1, 7, 0, "forward-recv", 60.0)]


def trace(folder, rows):
    columns = map(np.array, zip(*rows, strict=True))
    np.savez(folder / "trace.npz", **dict(zip(COLUMNS, columns, strict=True)))
    return folder / "trace.npz"


def test_a_time_is_what_all_stages_computed_for_a_micro_batch(tmp_path):
    found = read_bytedance(trace(tmp_path, ROWS + OTHERS))
    assert_same(found, table([[12.0, 4.0], [1.5, 6.0], [2.0, 3.0]]))


def test_a_workers_rows_in_order_of_time_are_its_iterations(tmp_path):
    path = tmp_path / "job.csv"
    path.write_text(",worker,gpu,time,batch_time_norm\n0,0,25,30,3\n1,0,25,10,1\n2,1,25,11,2\n")
    assert_same(read_alibaba(path), table([[1.0, 2.0], [3.0, np.nan]]))
