"""Tests of the figures about iterations that a scheduler closed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.support.reports.run_folders import MS, make_run
from tests.support.reports.timelines import by_name, drawn

from outpace.predict.interface import Wait
from outpace.record import folder as files
from outpace.record.recorder import Recorder
from outpace.record.trace import Trace, trace_table
from outpace.report.figures.cut_offs import cut_offs
from outpace.report.read.runs import read_runs
from outpace.report.read.traces import totals_of


def closed(folder: Path) -> list[dict[str, Any]]:
    rows = pq.read_table(folder / files.TRACE).to_pylist()
    return [row for row in rows if row["event"] == "cut-off"]


def test_the_line_has_every_iteration_with_the_gradients_that_counted(simulated):
    runs = read_runs([simulated["BSP"], simulated["cut-off"]])
    figure = cut_offs(runs, [totals_of(run) for run in runs])
    assert figure is not None
    rows = closed(simulated["cut-off"])
    counts = [row["clock"] for row in rows]
    assert len(counts) == 12
    assert max(counts) < 4  # the straggler never counts
    (view,) = figure.views.values()
    (trace,) = view.traces
    assert (trace["name"], trace["x"]) == ("cut-off", list(range(12)))
    assert trace["y"] == pytest.approx(counts, rel=1e-4)
    open_s = [(row["end_ns"] - row["start_ns"]) * 1e-9 for row in rows]
    assert f"gradients in {sum(open_s) / 12:.3g}" in view.note
    assert [shape["y0"] for shape in view.layout["shapes"]] == [4]  # all workers


def test_a_closing_that_makes_no_sense_is_the_files_fault(tmp_path):
    folder = make_run(tmp_path / "a")
    sink = trace_table(folder / files.TRACE)
    trace = Trace(sink)
    recorder = Recorder(trace)
    recorder.iteration_finished(0, 0, 0, MS, MS, 0, 0)
    recorder.iteration_closed(0, 2 * MS, MS, Wait(), 1)
    trace.flush()
    sink.close()
    (run,) = read_runs([folder])
    assert totals_of(run) is None
    assert run.problems == [
        f"{folder / files.TRACE}: an iteration in it lacks a time or ends before it begins"
    ]


def test_a_line_across_all_lanes_says_when_an_iteration_was_closed(simulated):
    (view,) = drawn(simulated["cut-off"])
    ended = {round(row["end_ns"] * 1e-9, 6) for row in closed(simulated["cut-off"])}
    lines = [shape["x0"] for shape in view.layout["shapes"]]
    assert len(lines) > 3
    assert set(lines) <= ended
    assert "Dashed: an iteration was closed." in view.note
    # The closing, and not the last worker to arrive, ended the waits.
    assert "released by" not in by_name(view)
    assert not any("for worker" in text for text in by_name(view)["wait"]["hovertext"])


def test_computation_that_was_cut_off_is_striped_and_counts_as_no_computation(simulated):
    (view,) = drawn(simulated["cut-off"])
    traces = by_name(view)
    assert traces["cut off"]["marker"]["pattern"]["shape"] == "/"
    stopped = {(text.split(",")[0]) for text in traces["cut off"]["hovertext"]}
    assert stopped == {"worker 0"}  # the straggler
    assert all(": cut off after " in text for text in traces["cut off"]["hovertext"])
    assert sum("worker 0," in text for text in traces["compute"]["hovertext"]) <= 1  # the warm-up
