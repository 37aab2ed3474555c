"""What a report and a calibration make of computations that late workers have stopped.

Worker 2 takes 4 s, and an iteration ends when the others have pushed, after 2 s.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.reports.perfetto import read
from tests.support.reports.run_folders import Page
from tests.support.reports.timelines import totals

from outpace.experiment.calibrating.runs import read_runs
from outpace.experiment.running import simulate
from outpace.record.run_times.run_folder import Of, read_run
from outpace.report.explaining import explained
from outpace.report.figures.timeline import FIRST, timeline
from outpace.report.page import write_report
from outpace.report.perfetto.export import write_perfetto

S = 10**9


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs") / "run"
    sync = {"kind": "drop-stragglers", "quorum": 2, "late": "stop"}
    law = {"kind": "constant", "mean_s": 1.0, "factors": [1, 2, 4]}
    beside = {"workers": 3, "servers": 2, "stop": {"iterations": 30}}
    simulate({"task": {"kind": "timing"}, "compute": law, "sync": sync, **beside}, place)
    return place


def test_the_page_says_how_many_were_stopped_and_what_they_cost(folder, tmp_path):
    write_report([folder], tmp_path / "report.html")
    text = Page(tmp_path / "report.html").text
    assert (
        "Late workers stopped 30 computations whose gradients no server would have taken any more; "
        "until then a worker had spent 20.0 s on them on average, 33.3 % of the time." in text
    )
    assert "carried no gradient" not in text


def test_a_calibration_has_what_the_whole_computations_would_have_taken(folder):
    (found,) = read_runs([folder])
    seconds = found.recording.seconds
    assert seconds.shape == (30, 3)
    assert seconds == pytest.approx(np.tile([1.0, 2.0, 4.0], (30, 1)))


@pytest.mark.parametrize("of", Of)
def test_models_learn_that_the_times_are_cut_off(folder, of):
    times, _ = read_run(folder, of, None)
    assert times.seconds == pytest.approx(np.tile([1.0, 2.0, 2.0], (30, 1)))
    assert times.censored.tolist() == [[False, False, True]] * 30


def test_the_timeline_draws_what_was_stopped_striped(folder):
    run, sums = totals(folder)
    view = timeline([run], [sums]).views["run", FIRST]
    bars = {trace["name"]: trace for trace in view.traces if trace["type"] == "bar"}
    drawn = bars["cut off"]
    assert (drawn["y"][:2], drawn["base"][:2], drawn["x"][:2]) == ([2, 2], [0, 2], [2, 2])
    did = "was late, and stopped after it had computed 2.00\xa0s of 4.00\xa0s"
    assert did in drawn["hovertext"][0]
    assert "Striped: late, and stopped" in view.note


def test_perfetto_says_what_was_stopped_and_what_it_would_have_taken(folder, tmp_path):
    write_perfetto(folder, tmp_path / "out.gz")
    slices = read(tmp_path / "out.gz").slices["workers/worker-2"]
    assert [(s.name, s.start, s.end) for s in slices][:2] == [
        ("compute, stopped", 0, 2 * S),
        ("compute, stopped", 2 * S, 4 * S),
    ]
    assert slices[0].args["whole computation ns"] == 4 * S


def test_a_worker_that_always_stops_is_found_with_the_time_that_it_would_have_taken(tmp_path):
    law = {"kind": "lognormal", "mean_s": 0.1, "cv": 0.03, "factors": [1, 1, 3, 1, 1]}
    sync = {"kind": "partial-push", "quorum": 2, "timeout_s": 0.02, "late": "stop"}
    beside = {"workers": 5, "stop": {"iterations": 40}}
    simulate({"task": {"kind": "timing"}, "compute": law, "sync": sync, **beside}, tmp_path)
    (cause,) = explained(tmp_path).causes
    assert (cause.name, cause.pattern) == ("worker 2", "steady")
    assert cause.factor == pytest.approx(3.0, abs=0.1)
