"""The report and the tables of runs with failures."""

import json

import pytest
from tests.support.reports.run_folders import Page

import outpace
from outpace.cli.base import print_comparison, print_table
from outpace.experiment.compared import compared
from outpace.report.faults import parts_of
from outpace.report.page import write_report
from outpace.report.read.runs import read_run

DATA = {
    "task": {"kind": "timing", "parameters": 8},
    "workers": 2,
    "compute": {"kind": "constant", "mean_s": 1.0},
    "stop": {"iterations": 40},
    "checkpoint": {"every_updates": 10},
    "variants": [
        {"name": "BSP", "sync": {"kind": "bsp"}},
        {"name": "ASP", "sync": {"kind": "asp"}},
    ],
    "faults": {
        # it has been replaced at 20.5, and must repeat 0.5 s
        "schedule": [{"at_s": 12.5, "worker": 1}],
        "recovery": {"detected_s": 1.0, "worker_s": 7.0},
    },
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "faults"
    plain = {key: value for key, value in DATA.items() if key != "variants"}
    for variant in DATA["variants"]:
        name = variant["name"]
        outpace.simulate({**plain, "sync": variant["sync"]}, folder / name)
    return folder


def test_the_parts_of_the_time_are_what_happened(folder):
    summary = json.loads((folder / "BSP" / "summary.json").read_text())
    # The iteration that was interrupted begins again 8 s later.
    assert summary["virtual_time_s"] == pytest.approx(40 + 0.5 + 8.0)
    assert summary["faults"]["goodput"] == pytest.approx(40 / 48.5)
    lost = summary["faults"]["lost_s"]  # per worker, of two
    assert lost == pytest.approx(
        {
            "detection": 0.5,
            "restart": 3.5,
            "repeated": 0.25,
        }
    )
    parts = parts_of(read_run(folder / "BSP", "BSP"))
    # Worker 0 waits while the other one is missing: half of 8.5 s.
    assert parts["waiting for others"] == pytest.approx(4.25 / 48.5)
    assert sum(parts.values()) == pytest.approx(1.0)


def test_the_report_has_a_row_for_each_run_with_failures(folder, tmp_path):
    write_report([folder / "BSP", folder / "ASP"], tmp_path / "report.html")
    page = Page(tmp_path / "report.html")
    text = page.text.replace("\N{NO-BREAK SPACE}", " ")
    assert "What failures cost" in text
    assert "1 worker" in text
    assert text.count("8.8 %") == 2  # waiting for others, in each row


def test_tables_have_a_column_for_goodput_where_runs_have_failures(capsys, folder):
    summaries = [json.loads((folder / n / "summary.json").read_text()) for n in ("BSP", "ASP")]
    print_table(["BSP", "ASP"], summaries)
    head, first, _ = capsys.readouterr().out.splitlines()
    assert head.endswith("goodput")
    assert first.endswith("0.825")
    print_comparison(compared(outpace.compare({**DATA, "seeds": 2})), of_runs=False)
    head, first, _ = capsys.readouterr().out.splitlines()
    assert "goodput" in head
    assert "0.825 [0.825, 0.825]" in first
