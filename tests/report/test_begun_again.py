"""What a report shows of computations that were abandoned, to begin again (specsync).

The run is that of tests/closed_form/test_speculation.py with a network: worker 0 computes
iteration 1 from 3.5 to 6.2 s in vain, pulls again until 6.4 s, and computes it until 9.7 s.
"""

from __future__ import annotations

import pytest
from tests.support.reports.perfetto import read
from tests.support.reports.run_folders import Page
from tests.support.reports.timelines import totals

from outpace.experiment.running import simulate
from outpace.report.figures.split import split_of_workers
from outpace.report.figures.timeline import FIRST, timeline
from outpace.report.page import write_report
from outpace.report.perfetto.export import write_perfetto

S = 10**9


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs") / "SpecSync"
    simulate(
        {
            "task": {"kind": "timing"},
            "workers": 3,
            "servers": 2,
            "compute": {
                "kind": "constant",
                "mean_s": 1.0,
                "slow": [{"workers": [0], "factor": 3.3}],
            },
            "network": {"latency_s": 0.1},
            "sync": {"kind": "specsync", "abort_time_s": 2.5, "abort_rate": 1.0},
            "stop": {"virtual_time_s": 10.0},
        },
        place,
    )
    return place


def test_the_page_says_how_many_computations_were_abandoned_and_what_they_cost(folder, tmp_path):
    write_report([folder], tmp_path / "report.html")
    page = Page(tmp_path / "report.html")
    assert (
        "Workers abandoned 1 computation, to begin again with newer parameters; that cost a worker "
        "0.900 s on average, 9 % of the time." in page.text
    )
    assert "Abandoned: the worker computed, and pulled again" in page.text


def test_the_time_split_has_the_abandoned_part_and_the_pull_after_it(folder):
    run, sums = totals(folder)
    assert sums.abandoned_s == pytest.approx([2.9, 0.0, 0.0])
    assert sums.compute_s[0] == pytest.approx(6.6)
    view = split_of_workers([run], [sums]).views["SpecSync",]
    bars = {trace["name"]: trace["x"] for trace in view.traces}
    assert bars["abandoned"] == pytest.approx([2.9, 0.0, 0.0])


def test_the_timeline_draws_the_abandoned_part_striped_before_the_iteration(folder):
    run, sums = totals(folder)
    view = timeline([run], [sums]).views["SpecSync", FIRST]
    bars = {trace["name"]: trace for trace in view.traces if trace["type"] == "bar"}
    drawn = bars["abandoned"]
    assert (drawn["y"], drawn["base"], drawn["x"]) == ([0], [3.5], [2.7])
    assert (
        "computed in vain for 2.70\xa0s, until 4 pushes of others had come" in drawn["hovertext"][0]
    )
    assert "pattern" in drawn["marker"]
    assert "Striped violet: abandoned" in view.note


def test_perfetto_has_it_on_the_track_of_the_worker(folder, tmp_path):
    write_perfetto(folder, tmp_path / "out.gz")
    slices = read(tmp_path / "out.gz").slices["workers/worker-0"]
    found = [(s.name, s.start, s.end) for s in slices]
    assert found[2:5] == [
        ("abandoned", 3.5 * S, 6.2 * S),
        ("pull again", 6.2 * S, 6.4 * S),
        ("compute", 6.4 * S, 9.7 * S),
    ]
    assert slices[2].args["pushes"] == 4
