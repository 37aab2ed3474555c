"""The tables of a run: rows in order, in memory and in segments that remain after the process."""

from __future__ import annotations

import pytest

from outpace.record.tables import CHUNK
from outpace.record.trace import ITERATION, PULL, PUSH, Trace, trace_table

ROWS = [
    (ITERATION, {"worker": 0, "iteration": 0, "start_ns": 0, "end_ns": 90, "computed_ns": 40}),
    (PUSH, {"worker": 1, "shard": 0, "iteration": 0, "start_ns": 50, "end_ns": 60, "outcome": 0}),
    (PULL, {"worker": 1, "shard": 0, "start_ns": 50, "version": 1, "clock": 0, "reason": 2}),
    (ITERATION, {"worker": 1, "iteration": 1, "start_ns": 60, "end_ns": 170}),
]


def test_rows_of_all_sizes_stay_in_their_order_and_keep_their_columns():
    trace = Trace(trace_table())
    numbers = range(CHUNK + 300)
    for number in numbers:
        trace.row((ITERATION, PUSH)[number % 2], worker=number)
        if number % 50 == 0:
            trace.flush()
    trace.flush()
    table = trace.table.table()
    assert table["worker"].to_pylist() == [*numbers]
    assert table["event"].to_pylist() == [("iteration", "push")[n % 2] for n in numbers]
    assert table["worker"].num_chunks == 2
    with pytest.raises(AssertionError, match="a row of push has no bound"):
        trace.row(PUSH, bound=3)


def trace_in(folder):
    folder.mkdir(exist_ok=True)
    return Trace(trace_table(folder / "trace.parquet", in_segments=True))


def record(trace, rows):
    for event, columns in rows:
        trace.row(event, **columns)
    return trace.cut()


def test_a_resumed_trace_has_the_digest_and_the_rows_of_one_that_was_not_interrupted(tmp_path):
    whole = trace_in(tmp_path / "whole")
    record(whole, ROWS)
    whole.table.close()
    whole.table.remove_segments()
    assert not (tmp_path / "whole" / "trace").exists()

    trace = trace_in(tmp_path / "run")
    record(trace, ROWS[:1])
    kept = record(trace, ROWS[1:3])
    assert kept == ("trace/000001.parquet", "trace/000002.parquet")
    record(trace, [(ITERATION, {"worker": 0, "iteration": 7, "start_ns": 500})])  # after it
    (tmp_path / "run" / "trace" / "000004.parquet.x.part").touch()  # never completed

    resumed = trace_in(tmp_path / "run")
    resumed.go_back(kept, 10**9)
    assert record(resumed, ROWS[3:]) == (*kept, "trace/000003.parquet")
    assert resumed.digest() == whole.digest()
    resumed.table.close()
    assert resumed.table.table() == whole.table.table()
    names = sorted(path.name for path in (tmp_path / "run" / "trace").iterdir())
    assert names == ["000001.parquet", "000002.parquet", "000003.parquet"]


def test_rows_of_the_time_after_a_checkpoint_are_removed(tmp_path):
    kept = record(trace_in(tmp_path), ROWS)
    trace = trace_in(tmp_path)
    trace.go_back(kept, 90)
    trace.table.close()
    assert trace.table.table()["end_ns"].to_pylist() == [90, 60, None]
