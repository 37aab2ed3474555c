"""ByteDance's traces: micro-batches are iterations, ranks of data parallelism are workers."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.tables import assert_same, table

from outpace.errors import ConfigError
from outpace.predict.recorded.bytedance import COLUMNS, read_bytedance
from outpace.record.run_times import read_source

DATA = Path(os.environ.get("OUTPACE_DATA", "../shared/data")).resolve() / "bytedance-straggler"
NAMES = ("dp_rank", "step", "mb_id", "optype", "duration")

# Two ranks of two stages, step 7 with two micro-batches and step 3 with one.
ROWS = [
    (rank, step, batch, f"{way}-compute", seconds)
    for rank, step, batch, forward, backward in [
        (0, 7, 0, 0.25, 0.5),
        (0, 7, 0, 0.25, 0.5),
        (1, 7, 0, 1.0, 2.0),
        (1, 7, 0, 1.0, 2.0),
        (0, 7, 1, 0.5, 0.5),
        (0, 7, 1, 0.5, 0.5),
        (1, 7, 1, 0.5, 1.0),
        (1, 7, 1, 0.5, 1.0),
        (0, 3, 0, 2.0, 4.0),
        (0, 3, 0, 2.0, 4.0),
        (1, 3, 0, 1.0, 1.0),
        (1, 3, 0, 1.0, 1.0),
    ]
    for way, seconds in (("forward", forward), ("backward", backward))
]
OTHERS = [(0, 3, -1, "grads-reduce-scatter", 50.0), (1, 7, 0, "forward-recv", 60.0)]
EXPECTED = table([[12.0, 4.0], [1.5, 6.0], [2.0, 3.0]])


def columns(rows) -> dict[str, np.ndarray]:
    return dict(zip(COLUMNS, map(np.array, zip(*rows, strict=True)), strict=True))


def npz(path: Path, rows=None) -> Path:
    np.savez(path, **columns(ROWS + OTHERS if rows is None else rows))
    return path


def test_a_time_is_what_all_stages_computed_for_a_micro_batch(tmp_path):
    assert NAMES == COLUMNS
    assert_same(read_bytedance(npz(tmp_path / "trace.npz")), EXPECTED)


def test_a_file_in_parquet_a_folder_and_an_npz_are_the_same(tmp_path):
    rows = columns(ROWS + OTHERS)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    pq.write_table(pa.table({k: pa.array(v) for k, v in rows.items()}), tmp_path / "a/t.parquet")
    npz(tmp_path / "b" / "trace.npz")
    for source in ("a", "a/t.parquet", "b", "b/trace.npz"):
        found = read_source(tmp_path / source, workers_per_node=1)
        assert_same(found.times, table(EXPECTED.seconds, node=[0, 1]))
        assert "micro-batch" in found.definition


def test_a_rank_that_lacks_operations_is_not_taken_for_a_fast_one(tmp_path):
    path = npz(tmp_path / "trace.npz", ROWS[:-1])
    with pytest.raises(ConfigError, match=r"rank 1 has 3 operations of round 0, others 4"):
        read_bytedance(path)


def test_a_rank_without_a_round_was_not_there(tmp_path):
    found = read_bytedance(npz(tmp_path / "trace.npz", ROWS[:-4]))
    assert np.isnan(found.seconds).tolist() == [[False, True], [False, False], [False, False]]


def test_files_that_are_no_trace_are_refused(tmp_path):
    path = tmp_path / "trace.npz"
    np.savez(path, dp_rank=[0], step=[1])
    with pytest.raises(ConfigError, match=r"needs the arrays dp_rank, .*, and lacks duration"):
        read_source(path)
    with pytest.raises(ConfigError, match="has no operation forward-compute or"):
        read_source(npz(path, OTHERS))
    whole = npz(path).read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"PK", b"not a trace"):
        path.write_bytes(damaged)
        with pytest.raises(ConfigError, match=r"cannot read the run times in .*trace\.npz"):
            read_source(path)
    np.savez(path, **{name: np.array([object()]) for name in COLUMNS})  # pickled
    with pytest.raises(ConfigError, match="cannot read the run times"):
        read_source(path)


def test_a_folder_with_several_traces_asks_which(tmp_path):
    npz(tmp_path / "trace-A.npz")
    npz(tmp_path / "trace-B.npz")
    with pytest.raises(ConfigError, match=r"name one of them: trace-A\.npz, trace-B\.npz"):
        read_source(tmp_path)


@pytest.mark.skipif(not DATA.is_dir(), reason=f"{DATA} is not there")
@pytest.mark.parametrize(("job", "shape"), [("SE", (43 * 8, 32)), ("AR", (44 * 32, 4))])
def test_the_released_jobs_are_read(job, shape):
    times = read_source(DATA / f"trace-{job}.npz").times
    assert times.seconds.shape == shape
    assert not np.isnan(times.seconds).any()
    if job == "AR":  # one worker was slowed down on purpose
        assert (times.seconds.argmax(axis=1) == times.seconds[0].argmax()).all()
