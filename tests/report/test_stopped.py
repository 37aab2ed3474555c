"""What a report and a calibration make of computations that late workers have stopped.

Worker 2 takes 4 s, and an iteration ends when the others have pushed, after 2 s.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.reports.run_folders import Page

from outpace.experiment.calibrating.runs import read_runs
from outpace.experiment.running import simulate
from outpace.report.page import write_report


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
