"""The switches of an adaptive strategy in the report and in Perfetto."""

from __future__ import annotations

from tests.support.reports.perfetto import read

from outpace.experiment.running import simulate
from outpace.record import folder as files
from outpace.report.perfetto.export import write_perfetto

SLOW = {"workers": [3], "factor": 5.0, "from_s": 4.5}
EXPERIMENT = {
    "task": {"kind": "timing", "parameters": 40},
    "workers": 4,
    "compute": {"kind": "constant", "mean_s": 1.0, "slow": [SLOW]},
    "sync": {"kind": "adaptive", "stale": False},
    "stop": {"iterations": 20},
}


def test_the_report_and_perfetto_say_when_the_strategy_was_switched_and_why(tmp_path):
    out = tmp_path / "run"
    _, switch = simulate(EXPERIMENT, out).summary["switches"]
    page = (out / files.REPORT).read_text("utf-8")
    section = page[page.index('id="switches-table"') :]
    for text in ("quorum 4, grace 100 ms", "quorum 3, grace 100 ms", switch["reason"]):
        assert text in section
    write_perfetto(out, tmp_path / "out.gz")
    drawn = read(tmp_path / "out.gz")
    found = drawn.instants["servers/run"]
    guard, mark = (each for each in found if each.name.startswith("switch"))
    assert guard.name == "switch from 4 to 4"
    assert mark.name == "switch from 4 to 3"
    assert mark.start == round(switch["time_s"] * 1e9)
    assert mark.args["reason"] == "more-progress"
    assert mark.args["grace ns"] == 10**8


def test_a_run_of_another_strategy_has_no_such_section(tmp_path):
    out = tmp_path / "run"
    simulate({**EXPERIMENT, "sync": {"kind": "bsp"}}, out)
    assert 'id="switches-table"' not in (out / files.REPORT).read_text("utf-8")
