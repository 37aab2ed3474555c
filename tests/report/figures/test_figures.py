"""The figures of progress, staleness and time split: their numbers agree with the files."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest
from tests.support.reports.run_folders import make_run

from outpace.record import folder as files
from outpace.report.figures.figure import colour, log_axis
from outpace.report.figures.progress import progress
from outpace.report.figures.staleness import staleness
from outpace.report.read.runs import read_runs
from outpace.report.target import ReportTarget
from outpace.report.words import label, number, percent, size, times


def test_lines_are_the_metrics(simulated):
    runs = read_runs([simulated["BSP"], simulated["ASP"]])
    figure = progress(runs, ReportTarget(0.5, given=True))
    keys = [(y, x) for y in range(3) for x in range(2)]
    views = dict(zip(keys, figure.views.values(), strict=True))
    table = pq.read_table(simulated["ASP"] / files.METRICS)
    assert table.num_rows > 3
    for y, quantity in enumerate(("accuracy", "train_loss", "test_loss")):
        for x, base in enumerate(("time_s", "gradients")):
            bsp, asp = views[y, x].traces
            assert (bsp["name"], asp["name"]) == ("BSP", "ASP")
            assert asp["y"] == pytest.approx(table[quantity].to_pylist(), rel=1e-4)
            assert asp["x"] == pytest.approx(table[base].to_pylist(), rel=1e-6)
    assert views[0, 0].layout["shapes"][0]["y0"] == 0.5
    assert "Dotted: 50\N{NO-BREAK SPACE}% accuracy, the target." in views[0, 0].note
    assert "shapes" not in views[1, 0].layout


def test_a_run_that_missed_the_target_ends_in_an_arrow(tmp_path):
    curves = {"reached": [(0.0, 0.1), (4.0, 0.9)], "missed": [(0.0, 0.1), (6.0, 0.7)]}
    runs = read_runs([make_run(tmp_path / name, accuracy=curves[name]) for name in curves])
    views = progress(runs, ReportTarget(0.8, given=True)).views
    *lines, arrow = views["Accuracy", "vs time"].traces
    assert [each["name"] for each in lines] == ["reached", "missed"]
    assert (arrow["x"], arrow["y"], arrow["marker"]["symbol"]) == ([6.0], [0.7], "arrow-right")
    assert arrow["marker"]["color"] == colour(1)
    assert "Arrow: ended without the target." in views["Accuracy", "vs time"].note
    assert len(views["Training loss", "vs time"].traces) == 2


def test_long_lines_are_thinned_but_keep_their_ends(tmp_path):
    points = [(float(n), n / 10_000) for n in range(5000)]
    (run,) = read_runs([make_run(tmp_path / "a", accuracy=points)])
    (trace,) = progress([run], None).views["Accuracy", "vs time"].traces
    assert len(trace["x"]) == 1000
    assert (trace["x"][0], trace["x"][-1]) == (0.0, 4999.0)


def test_staleness_is_a_share_of_gradients(tmp_path):
    folders = [
        make_run(tmp_path / "fresh"),
        make_run(tmp_path / "stale", staleness={"histogram": {"0": 1, "2": 3}}),
    ]
    (view,) = staleness(read_runs(folders)).views.values()
    (trace,) = view.traces
    assert trace["name"] == "stale"
    assert trace["y"] == [0.25, 0, 0.75]
    assert trace["x"] == [0, 1, 2]
    assert trace["marker"]["color"] == colour(1)
    assert "All gradients of fresh had staleness 0" in view.note


def test_far_staleness_is_binned_and_nothing_lost(tmp_path):
    histogram = {str(n): 1 for n in range(0, 1000, 3)}
    (run,) = read_runs([make_run(tmp_path / "a", staleness={"histogram": histogram})])
    (view,) = staleness([run]).views.values()
    (trace,) = view.traces
    assert len(trace["y"]) <= 40
    assert sum(trace["y"]) == pytest.approx(1.0, rel=1e-3)
    assert "in steps of 25" in view.layout["xaxis"]["title"]["text"]


def test_staleness_0_alone_is_said_in_words(tmp_path):
    figure = staleness(read_runs([make_run(tmp_path / "a")]))
    assert not figure.views
    assert "All gradients of a had staleness 0." in figure.instead
    none = staleness(read_runs([make_run(tmp_path / "b", staleness={})]))
    assert "No gradient was applied to parameters that workers share." in none.instead


@pytest.mark.parametrize(("low", "high"), [(0.05, 20.0), (0.3, 1.6), (1e3, 3e8)])
def test_all_tick_labels_of_a_logarithmic_axis_differ(low, high):
    drawn = log_axis("bytes", [low, high])
    assert len(set(drawn["ticktext"])) == len(drawn["ticktext"])
    assert sum(low <= tick <= high for tick in drawn["tickvals"]) >= 2


def test_long_names_lose_their_middle_in_figures_and_all_are_escaped():
    assert label("SSP <3>") == "SSP &lt;3&gt;"
    assert label("diloco with momentum 0.95") == "diloco wit…um 0.95"


def test_numbers_are_written_for_people():
    assert [number(x) for x in (0, 0.0001234, 0.0120, 5, 99.96, 100, 12345.6)] == [
        "0",
        "0.000123",
        "0.0120",
        "5.00",
        "100",
        "100",
        "12,346",
    ]
    assert number(1.2e-7) == "1.2e-07"
    assert number(1.0995e36) == "1.1e+36"
    spaced = [percent(0.876), percent(1), size(0), size(294_005_760), size(5e15)]
    assert [text.replace("\N{NO-BREAK SPACE}", " ") for text in spaced] == [
        "87.6 %",
        "100 %",
        "0 B",
        "294 MB",
        "5,000 TB",
    ]
    assert [times(x) for x in (1.58, 12.3)] == ["1.6×", "12×"]
