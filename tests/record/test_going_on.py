"""The trace and the metrics of a run continue where an earlier session stopped."""

from __future__ import annotations

import pytest

from outpace.record.metrics import Metrics
from outpace.record.segments import SegmentedSink
from outpace.record.totals import Totals
from outpace.record.trace import ITERATION, NONE, PULL, PUSH, Trace
from outpace.simulation.checkpoints import logged_until
from outpace.tasks import Evaluation

ROWS = [
    (ITERATION, 0, NONE, 0, 0, 90, 40),
    (PUSH, 1, 0, 0, 50, 60, NONE, NONE, 0, 1, 0),
    (PULL, 1, 0, 0, 50, NONE, NONE, NONE, 1, NONE, NONE, 0, 2, 1, 3, NONE),
    (ITERATION, 1, NONE, 1, 60, 170, 120),
]


def record(trace, sink, rows):
    for row in rows:
        trace.row(*row)
    trace.flush()
    return sink.cut()


def test_a_trace_that_goes_on_has_the_digest_and_the_rows_of_one_that_was_not_interrupted(tmp_path):
    (tmp_path / "whole").mkdir()
    whole = SegmentedSink(tmp_path / "whole" / "trace.parquet")
    uninterrupted = Trace(whole)
    record(uninterrupted, whole, ROWS)
    whole.close()
    whole.remove_segments()
    assert not (tmp_path / "whole" / "trace").exists()

    path = tmp_path / "trace.parquet"
    first = SegmentedSink(path)
    trace = Trace(first)
    record(trace, first, ROWS[:1])
    kept = record(trace, first, ROWS[1:3])
    assert kept == ("trace/000001.parquet", "trace/000002.parquet")
    record(trace, first, [(ITERATION, 0, NONE, 7, 500)])  # after the checkpoint: not kept
    first(trace_batch := next(first.batches()))  # a segment that is never completed
    assert trace_batch.num_rows == 1

    second = SegmentedSink(path)
    second.go_back(kept)
    trace = Trace(second)
    trace.take_up(second.batches())
    assert record(trace, second, ROWS[3:]) == (*kept, "trace/000003.parquet")
    assert trace.digest() == uninterrupted.digest()
    second.close()
    assert second.table() == whole.table()
    names = sorted(path.name for path in (tmp_path / "trace").iterdir())
    assert names == ["000001.parquet", "000002.parquet", "000003.parquet"]


def test_rows_of_the_time_after_a_checkpoint_are_removed(tmp_path):
    sink = SegmentedSink(tmp_path / "trace.parquet")
    trace = Trace(sink)
    kept = record(trace, sink, ROWS)
    sink = SegmentedSink(tmp_path / "trace.parquet")
    sink.go_back(kept)
    sink.drop_after(90)
    sink.close()
    assert sink.table()["end_ns"].to_pylist() == [90, 60, None]


def test_a_sink_that_never_got_a_row_makes_an_empty_file(tmp_path):
    sink = SegmentedSink(tmp_path / "trace.parquet")
    assert sink.cut() == ()
    sink.close()
    assert sink.table().num_rows == 0


def later(metrics, interrupted):
    """Return the metrics, or those of a session that continues from a checkpoint."""
    if not interrupted:
        return metrics
    resumed = Metrics()
    resumed.take_up(metrics.kept())
    return resumed


@pytest.mark.parametrize("interrupted", [False, True])
def test_metrics_of_a_task_go_on_with_the_mean_since_the_last_evaluation(interrupted):
    metrics, totals = Metrics(), Totals(applied=2, loss_sum=3.0, losses=2)
    metrics.add(10**9, 2, Evaluation(0.5, 0.6, 0.7), totals)
    totals.loss_sum, totals.losses = 4.0, 3  # one batch with a loss of 1
    metrics = later(metrics, interrupted)
    assert metrics.last == {"train_loss": 0.5, "test_loss": 0.6, "accuracy": 0.7}
    totals.loss_sum, totals.losses, totals.applied = 6.0, 4, 3  # one with a loss of 2
    metrics.add(3 * 10**9, 3, Evaluation(0.3, 0.4, 0.8), totals)
    rows = metrics.table().to_pylist()
    assert [row["batch_loss"] for row in rows] == [1.5, 1.5]
    assert [row["time_s"] for row in rows] == [1, 3]


@pytest.mark.parametrize("interrupted", [False, True])
def test_metrics_of_a_script_go_on_with_the_worker_that_makes_the_curve(interrupted):
    metrics = Metrics()
    metrics.log(10**9, 1, 4, {"train_loss": 0.4, "lr": 0.1})
    metrics = later(metrics, interrupted)
    assert metrics.last == {"train_loss": 0.4}
    assert metrics.log(2 * 10**9, 2, 5, {"train_loss": 9.0, "depth": 2.0}) == Evaluation()
    assert metrics.log(3 * 10**9, 0, 5, {"train_loss": 8.0}) == Evaluation(8.0)
    rows = metrics.table().to_pylist()
    assert [row["lr"] for row in rows] == [0.1, None, None]
    assert [row["depth"] for row in rows] == [None, 2.0, None]
    assert [row["worker"] for row in rows] == [1, 2, 0]


def test_small_segments_become_one_and_stay_while_a_checkpoint_names_them(tmp_path):
    folder = tmp_path / "trace"

    def files():
        return sorted(int(path.stem) for path in folder.iterdir())

    sink = SegmentedSink(tmp_path / "trace.parquet")
    trace = Trace(sink)
    for end in range(63):
        before = record(trace, sink, [(ITERATION, 0, NONE, end, end, 100 + end, end)])
    assert len(before) == 63
    joined = record(trace, sink, [(ITERATION, 0, NONE, 63, 63, 163, 63)])
    assert joined == ("trace/000065.parquet",)
    assert files() == [*range(1, 66)]

    sink = SegmentedSink(tmp_path / "trace.parquet")
    sink.go_back(before)  # the last one was damaged
    assert files() == [*range(1, 64)]
    assert sum(batch.num_rows for batch in sink.batches()) == 63
    assert not sink.has_spare

    trace = Trace(sink)
    for end in range(63, 63 + 64):
        after = record(trace, sink, [(ITERATION, 0, NONE, end, end, 100 + end, end)])
    assert after[:-1] == before
    assert sink.has_spare
    sink = SegmentedSink(tmp_path / "trace.parquet")
    sink.go_back(after)
    sink.tidy({"trace/000070.parquet"})
    assert files() == [*range(1, 64), 70, 128]
    sink.tidy(())
    assert files() == [*range(1, 64), 128]
    sink.close()
    assert sink.table()["iteration"].to_pylist() == [*range(63 + 64)]


def test_of_scripts_that_are_saved_one_after_the_other_each_row_is_kept_or_comes_again():
    metrics = Metrics()
    for worker, iteration in ((2, 8), (0, 3), (1, 3), (0, 4), (1, 4)):
        metrics.log(0, worker, iteration, {"lr": 0.1})
    # Worker 0 was saved after two rows, worker 1 after four; worker 2 had left before.
    kept = logged_until(metrics.kept(), {0: 2, 1: 4})
    assert kept["worker"].to_pylist() == [2, 0, 1]
    later = Metrics()
    later.take_up(kept)
    assert later.table()["iteration"].to_pylist() == [8, 3, 3]
