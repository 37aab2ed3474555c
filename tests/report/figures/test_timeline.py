"""Time of the workers and their waits for each other, from the trace."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.support.reports.run_folders import MS, make_run, write_waiting_trace
from tests.support.reports.timelines import by_name, drawn, totals

from outpace.record import folder as files
from outpace.record import reading
from outpace.report.figures.split import MOST, shown_workers, split_of_workers
from outpace.report.figures.timeline import (
    first_span,
    span_around,
    timeline,
)
from outpace.report.read.events import read_events


@pytest.mark.parametrize("name", ["SSP", "timing"])
def test_the_sums_of_the_trace_are_those_of_the_summary(simulated, name, monkeypatch):
    monkeypatch.setattr(reading, "BATCH", 7)  # many small batches
    run, sums = totals(simulated[name])
    assert sums.iterations.tolist() == run.summary["iterations"]
    assert sums.finished.sum() == sums.iterations.sum()
    means = {
        "compute": sums.compute_s.mean(),
        "communicate": sums.communicate_s.mean(),
        "wait": sums.wait_s.mean(),
    }
    assert means == pytest.approx(run.summary["seconds"])


def test_the_longest_wait_is_found(simulated, monkeypatch):
    monkeypatch.setattr(reading, "BATCH", 7)
    _, sums = totals(simulated["SSP"])
    rows = pq.read_table(simulated["SSP"] / files.TRACE).to_pylist()
    longest = max((r for r in rows if r["event"] == "iteration"), key=lambda r: r["held_ns"])
    assert sums.longest is not None
    assert sums.longest.held_ns == longest["held_ns"] > 0
    assert (sums.longest.worker, sums.longest.iteration) == (
        longest["worker"],
        longest["iteration"],
    )
    assert totals(simulated["ASP"])[1].longest is None


def test_events_of_a_span_are_those_that_overlap_it(simulated, monkeypatch):
    monkeypatch.setattr(reading, "BATCH", 7)
    path = simulated["BSP"] / files.TRACE
    low, high = 300 * MS, 700 * MS
    (events,) = read_events(path, [(low, high)])
    expected = {
        (row["worker"], row["iteration"])
        for row in pq.read_table(path).to_pylist()
        if row["event"] == "iteration" and row["end_ns"] > low and row["start_ns"] < high
    }
    found = events.iterations
    pairs = list(zip(found["worker"].tolist(), found["iteration"].tolist(), strict=True))
    assert sorted(pairs) == sorted(expected)
    assert len(expected) >= 4
    assert set(events.waits["reason"]) == {"beyond-bound"}


def test_a_wait_says_who_waited_where_for_whom_and_why(tmp_path):
    folder = make_run(tmp_path / "a")
    write_waiting_trace(folder)
    view = drawn(folder)[0]
    traces = by_name(view)
    (text,) = traces["wait"]["hovertext"]
    assert text.replace("\N{NO-BREAK SPACE}", " ").startswith(
        "worker 1, iteration 3: waited 0.190 s at server 0 for worker 0 (lead 3 ≥ bound 3)"
    )
    assert (traces["wait"]["base"], traces["wait"]["x"]) == ([0.11], [0.19])
    assert traces["compute"]["x"] == [0.29, 0.1]
    assert traces["compute"]["text"] == ["0", "3"]
    # Communication before and after the wait.
    spans = list(zip(traces["communicate"]["base"], traces["communicate"]["x"], strict=True))
    assert sorted(spans) == [(0.1, 0.01), (0.29, 0.02), (0.3, 0.01)]
    assert "worker 0" in view.note


def test_a_line_runs_from_who_released_to_who_waited(tmp_path):
    folder = make_run(tmp_path / "a")
    write_waiting_trace(folder)
    for view in drawn(folder):
        line = by_name(view)["released by"]
        assert line["x"] == [0.3, 0.3, None]
        low, high, _ = line["y"]
        assert low == 0  # worker 0's lane
        assert 0 < high < 1  # the near edge of worker 1's
        marks = view.traces[-1]
        assert list(zip(marks["y"], marks["marker"]["symbol"], strict=True)) == [
            (0, "circle"),
            (high, "triangle-down"),
        ]


def test_every_release_of_bsp_is_drawn_and_asp_has_none(simulated):
    _, first, _, asp = drawn(simulated["BSP"], simulated["ASP"])
    lines = by_name(first)["released by"]
    waits = by_name(first)["wait"]
    assert len(lines["x"]) // 3 >= 5
    ends = np.array([b + x for b, x in zip(waits["base"], waits["x"], strict=True)])
    for time_s in (x for x in lines["x"] if x is not None):
        assert np.abs(ends - time_s).min() < 2e-6
    assert "released by" not in by_name(asp)
    assert by_name(asp)["wait"]["x"] == []
    assert asp.note.startswith("No worker waited in this run.")
    assert "was for worker 0" in first.note  # the straggler


def test_the_longest_wait_is_in_its_span(simulated):
    _, sums = totals(simulated["SSP"])
    wait = sums.longest
    assert wait is not None
    start = wait.end_ns - wait.held_ns
    low, high = span_around(start, wait.end_ns, first_span([sums])[1])
    assert low <= start < wait.end_ns <= high


def test_of_many_workers_those_waited_for_are_shown(tmp_path, monkeypatch):
    from outpace.experiment.running import simulate

    config = {
        "task": {"kind": "timing", "parameters": 100},
        "workers": 40,
        "compute": {
            "kind": "lognormal",
            "mean_s": 0.1,
            "cv": 0.1,
            "slow": [{"workers": [37], "factor": 4.0}],
        },
        "sync": {"kind": "bsp"},
        "stop": {"iterations": 4},
    }
    folder = tmp_path / "many"
    simulate(config, folder)
    run, sums = totals(folder)
    lanes, note = shown_workers(sums, wanted=[25])
    assert len(lanes) == MOST
    assert lanes == sorted(lanes)
    assert {0, 25, 37} <= set(lanes)
    assert "16 of 40 workers" in note
    (_, view) = drawn(folder)
    assert "Shown are 16 of 40 workers" in view.note
    assert "100 % was for worker 37" in view.note.replace("\N{NO-BREAK SPACE}", " ")
    (split,) = split_of_workers([run], [sums]).views.values()
    assert len(split.traces[0]["x"]) == MOST


def test_a_run_without_waits_shows_its_first_iterations_only(simulated):
    (view,) = drawn(simulated["ASP"])
    assert "longest wait" not in view.note


def test_workers_of_several_nodes_are_shown_with_their_nodes(tmp_path):
    nodes = {"worker-0": "one", "worker-1": "t<o", "server-0": "one"}
    folder = make_run(tmp_path / "run", nodes=nodes)
    write_waiting_trace(folder)
    run, sums = totals(folder)
    expected = ["0 (one)", "1 (t&lt;o)"]
    for figure in (split_of_workers([run], [sums]), timeline([run], [sums])):
        for view in figure.views.values():
            assert view.layout["yaxis"]["ticktext"] == expected
