"""Tests of the sentences and figures about iterations that a scheduler closed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.support.reports.perfetto import read
from tests.support.reports.run_folders import MS, Page, make_run

from outpace.experiment.running import simulate
from outpace.predict.interface import Wait
from outpace.record import folder as files
from outpace.record.reading import Unreadable
from outpace.record.recorder import Recorder
from outpace.record.sinks import ParquetSink
from outpace.record.trace import Trace
from outpace.report.figures.cut_offs import cut_offs
from outpace.report.figures.timeline import FEWEST, FIRST, timeline
from outpace.report.findings import findings
from outpace.report.page import write_report
from outpace.report.perfetto.export import write_perfetto
from outpace.report.read.events import read_events
from outpace.report.read.runs import read_runs, strategies
from outpace.report.read.totals import CutOffs, cut_offs_of, read_totals, totals_of


def rows(folder: Path, event: str) -> list[dict[str, Any]]:
    return [row for row in pq.read_table(folder / files.TRACE).to_pylist() if row["event"] == event]


def figure_of(*folders: Path) -> Any:
    runs = read_runs(folders)
    return cut_offs(runs, [totals_of(run) for run in runs])


def timeline_of(*folders: Path) -> Any:
    runs = read_runs(folders)
    return timeline(runs, [totals_of(run) for run in runs])


def grouped(counts: list[int], most: int) -> CutOffs:
    """Iteration n was closed at n + 1 s."""
    numbers = np.arange(len(counts))
    rows = {
        "iteration": numbers,
        "clock": np.array(counts),
        "start_ns": numbers * 1000 * MS,
        "end_ns": (numbers + 1) * 1000 * MS,
    }
    found = cut_offs_of(rows, most)
    assert found is not None
    return found


def test_the_line_has_every_iteration_with_the_gradients_that_counted(simulated):
    figure = figure_of(simulated["cut-off"])
    closed = rows(simulated["cut-off"], "cut-off")
    counts = [row["clock"] for row in closed]
    open_s = [(row["end_ns"] - row["start_ns"]) * 1e-9 for row in closed]
    ended_s = [row["end_ns"] * 1e-9 for row in closed]
    assert len(counts) == 12
    assert max(counts) < 4  # the straggler never counts
    rates = [count / time for count, time in zip(counts, open_s, strict=True)]
    for place, values in enumerate((counts, open_s, rates)):
        by_iteration, by_time = list(figure.views.values())[2 * place : 2 * place + 2]
        assert by_iteration.traces[0]["x"] == list(range(12))
        assert by_time.traces[0]["x"] == pytest.approx(ended_s, rel=1e-4)
        for view in (by_iteration, by_time):
            assert view.traces[0]["y"] == pytest.approx(values, rel=1e-4)
    first, *_ = figure.views.values()
    assert [shape["y0"] for shape in first.layout["shapes"]] == [4]  # all workers


def test_many_iterations_are_put_into_groups_and_none_is_lost():
    counts = [3 + n % 5 for n in range(29)]
    counts[17] = 1
    found = grouped(counts, most=8)
    assert found.width == 4
    assert found.iterations.tolist() == [4] * 7 + [1]
    assert found.gradients.tolist() == [sum(counts[n : n + 4]) for n in range(0, 29, 4)]
    assert found.open_s == pytest.approx([4.0] * 7 + [1.0])
    assert found.ended_s == pytest.approx([4, 8, 12, 16, 20, 24, 28, 29])
    assert (found.deepest.iteration, found.deepest.gradients) == (17, 1)


def test_a_closing_that_makes_no_sense_is_the_files_fault(tmp_path):
    folder = make_run(tmp_path / "a")
    sink = ParquetSink(folder / files.TRACE)
    trace = Trace(sink)
    recorder = Recorder(trace)
    recorder.iteration_finished(0, 0, 0, MS, MS, 0, 0)
    recorder.iteration_closed(0, 2 * MS, MS, Wait(), 1)
    trace.flush()
    sink.close()
    with pytest.raises(Unreadable, match=r"trace\.parquet: .* closed before it started"):
        read_totals(folder / files.TRACE, 2, 1.0)


def test_beside_cut_offs_the_mean_rate_of_the_others_is_drawn(simulated):
    runs = read_runs([simulated["BSP"], simulated["cut-off"]])
    figure = cut_offs(runs, [totals_of(run) for run in runs])
    assert figure is not None
    counts, *_, rates = figure.views.values()
    assert [trace["name"] for trace in counts.traces] == ["cut-off"]
    assert [trace["name"] for trace in rates.traces] == ["cut-off", "BSP, mean"]
    assert rates.traces[1]["y"] == pytest.approx([runs[0].gradients_per_s] * 2, rel=1e-4)


def test_only_reports_with_cut_offs_have_that_section(simulated, tmp_path):
    for names, there in ((["BSP", "cut-off"], True), (["BSP", "ASP"], False)):
        path = tmp_path / "report.html"
        write_report([simulated[name] for name in names], path)
        page = Page(path)
        assert ("cut-offs" in page.ids) is there
        assert ("figure-cut-offs" in page.figures) is there


def test_the_computations_that_did_not_count_are_striped_and_no_others(simulated):
    folder = simulated["cut-off"]
    figure = timeline_of(folder)
    view = figure.views["cut-off", FIRST]
    low, high = (1e9 * time for time in view.layout["xaxis"]["range"])
    outcome = {
        (row["worker"], row["iteration"]): row["outcome"]
        for row in rows(folder, "push")
        if row["shard"] == 0
    }
    expected: dict[str, Counter[tuple[int, float]]] = {"compute": Counter(), "cut off": Counter()}
    for row in rows(folder, "iteration"):
        computed = row["computed_ns"] > row["start_ns"]
        if computed and row["end_ns"] > max(low, 0) and row["start_ns"] < high:
            counted = outcome[row["worker"], row["iteration"]] == "applied"
            start = round(row["start_ns"] * 1e-9, 6)
            expected["compute" if counted else "cut off"][row["worker"], start] += 1
    bars = {trace["name"]: trace for trace in view.traces if trace["type"] == "bar"}
    for name in expected:
        assert Counter(zip(bars[name]["y"], bars[name]["base"], strict=True)) == expected[name]
    assert expected["cut off"]
    assert "pattern" in bars["cut off"]["marker"]
    assert "pattern" not in bars["compute"]["marker"]


def test_a_line_across_all_lanes_says_when_an_iteration_was_closed(simulated):
    view, *_ = timeline_of(simulated["cut-off"]).views.values()
    lines = next(trace for trace in view.traces if trace["name"] == "iteration closed")
    closed = rows(simulated["cut-off"], "cut-off")
    ended = [round(row["end_ns"] * 1e-9, 6) for row in closed]
    times = lines["x"][::3]
    assert len(times) > 3
    assert set(times) <= set(ended)
    assert lines["y"][:2] == [-0.5, 3.5]  # four lanes
    texts = view.traces[-1]["hovertext"]
    first = closed[ended.index(times[0])]
    assert texts[0].startswith(f"iteration {first['iteration']}: closed after")
    assert f"with {first['clock']} gradients" in texts[0]
    # The closing, and not the last worker to arrive, ended the waits.
    assert not any(trace.get("name") == "released by" for trace in view.traces)
    waits = next(trace for trace in view.traces if trace["name"] == "wait")
    assert waits["hovertext"]
    assert all("until the iteration was closed" in text for text in waits["hovertext"])


def test_a_single_run_shows_first_where_the_fewest_counted(simulated):
    figure = timeline_of(simulated["cut-off"])
    fewest = min(row["clock"] for row in rows(simulated["cut-off"], "cut-off"))
    assert figure.options[1][0] == FEWEST
    note = figure.views["cut-off", FEWEST].note
    assert note.startswith(f"The fewest gradients: {fewest} of 4 in iteration")


def test_another_run_is_shown_at_the_same_time(simulated):
    figure = timeline_of(simulated["BSP"], simulated["cut-off"])
    assert figure.options[1][-1] == FEWEST
    bsp, cut = (figure.views[name, FEWEST] for name in ("BSP", "cut-off"))
    assert bsp.layout["xaxis"]["range"] == cut.layout["xaxis"]["range"]
    assert bsp.note.startswith("This is the span of time shown for cut-off.")
    assert FEWEST not in timeline_of(simulated["BSP"]).options[1]


def test_of_many_workers_those_cut_off_most_are_shown(tmp_path):
    config = {
        "task": {"kind": "timing", "parameters": 100},
        "workers": 40,
        "compute": {
            "kind": "constant",
            "mean_s": 0.1,
            "slow": [{"workers": [33, 38], "factor": 4.0}],
        },
        "sync": {"kind": "cutoff", "model": "fixed", "share": 0.9, "warmup": 0},
        "stop": {"iterations": 6},
    }
    folder = tmp_path / "many"
    simulate(config, folder)
    (events,) = read_events(folder / files.TRACE, [(0, 10**9)])
    assert {worker for worker, _ in events.unused} == {33, 38}
    view = timeline_of(folder).views["many", FEWEST]
    assert {"33", "38"} <= set(view.layout["yaxis"]["ticktext"])
    assert view.note.endswith("the slowest; and the first.")


def test_sentences_say_how_many_counted(tmp_path):
    found = {"iterations": 100, "mean_count": 3.5, "mean_iteration_s": 0.5}
    config = {"workers": 4, "sync": {"kind": "cutoff"}}
    cut = make_run(tmp_path / "cut", config=config, cut_offs=found, pushes_abstained=50)
    (run,) = read_runs([cut])
    _, sentence, waiting = findings([run], [None], None)[:3]
    assert sentence == (
        "An iteration ended with 3.50 of 4 gradients on average; 50 times a worker was cut off "
        "and stopped computing."
    )
    assert waiting.endswith("waiting for others.")
    runs = read_runs([cut, make_run(tmp_path / "other")])
    said = findings(runs, [None, None], None)
    assert "Gradients that counted per iteration: 3.50 of 4 with cut." in said


def test_of_a_cut_off_strategy_the_model_is_said_and_what_differs(tmp_path):
    plain = {"kind": "cutoff", "model": "last-5", "file": None, "share": 0.943, "samples": 100}
    learned = plain | {"model": "pooled", "file": "/somewhere/pooled.safetensors"}
    runs = read_runs(
        [
            make_run(tmp_path / name, config={"sync": sync})
            for name, sync in (("a", plain), ("b", learned), ("c", learned | {"samples": 20}))
        ]
    )
    assert strategies(runs[:1]) == ["cutoff, model last-5"]
    assert strategies(runs) == [
        "cutoff, model last-5, samples 100",
        "cutoff, model pooled, file pooled.safetensors, samples 100",
        "cutoff, model pooled, file pooled.safetensors, samples 20",
    ]


def test_perfetto_has_a_track_of_the_iterations(simulated, tmp_path):
    write_perfetto(simulated["cut-off"], tmp_path / "out.gz")
    track = read(tmp_path / "out.gz").slices["servers/scheduler"]
    assert [(s.name, s.start, s.end, s.args["gradients"]) for s in track] == [
        (str(row["iteration"]), row["start_ns"], row["end_ns"], row["clock"])
        for row in rows(simulated["cut-off"], "cut-off")
    ]
