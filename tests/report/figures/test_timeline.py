"""Time of the workers and their waits for each other, from the trace."""

from __future__ import annotations

import pytest
from tests.support.reports.run_folders import make_run, write_waiting_trace
from tests.support.reports.timelines import by_name, drawn, totals

from outpace.report.figures.split import MOST, shown_workers, split_of_workers
from outpace.report.figures.timeline import timeline


@pytest.mark.parametrize("name", ["SSP", "timing"])
def test_the_sums_of_the_trace_are_those_of_the_summary(simulated, name):
    run, sums = totals(simulated[name])
    assert sums.iterations.tolist() == run.summary["iterations"]
    means = {
        "compute": sums.compute_s.mean(),
        "communicate": sums.communicate_s.mean(),
        "wait": sums.wait_s.mean(),
    }
    assert means == pytest.approx(run.summary["seconds"])


def test_a_wait_says_for_whom_and_an_arrow_shows_it(tmp_path):
    folder = make_run(tmp_path / "a")
    write_waiting_trace(folder)
    view = drawn(folder)[0]
    traces = by_name(view)
    (text,) = traces["wait"]["hovertext"]
    said = "worker 1, iteration 3: wait 0.190 s for worker 0"
    assert text.replace("\N{NO-BREAK SPACE}", " ").startswith(said)
    assert (traces["wait"]["base"], traces["wait"]["x"]) == ([0.11], [0.19])
    assert traces["compute"]["x"] == [0.29, 0.1]
    assert traces["compute"]["text"] == ["0", "3"]
    # Communication before and after the wait.
    spans = list(zip(traces["communicate"]["base"], traces["communicate"]["x"], strict=True))
    assert sorted(spans) == [(0.1, 0.01), (0.29, 0.02), (0.3, 0.01)]
    arrow = traces["released by"]
    assert arrow["x"] == [0.3, 0.3, None]
    assert arrow["y"][0] == 0  # worker 0's lane
    assert 0 < arrow["y"][1] < 1  # the near edge of worker 1's
    assert arrow["marker"]["symbol"][:2] == ["circle", "arrow"]


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
    (view,) = drawn(folder)
    assert "Shown are 16 of 40 workers" in view.note
    assert "100 % was for worker 37" in view.note.replace("\N{NO-BREAK SPACE}", " ")
    (split,) = split_of_workers([run], [sums]).views.values()
    assert len(split.traces[0]["x"]) == MOST


def test_workers_of_several_nodes_are_shown_with_their_nodes(tmp_path):
    nodes = {"worker-0": "one", "worker-1": "t<o", "server-0": "one"}
    folder = make_run(tmp_path / "run", nodes=nodes)
    write_waiting_trace(folder)
    run, sums = totals(folder)
    expected = ["0 (one)", "1 (t&lt;o)"]
    for figure in (split_of_workers([run], [sums]), timeline([run], [sums])):
        for view in figure.views.values():
            assert view.layout["yaxis"]["ticktext"] == expected
