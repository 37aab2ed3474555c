"""The report of an interrupted run: a sentence, lines in the progress, bars in the lanes."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.support.reports.run_folders import (
    Page,
    make_run,
    write_interrupted_trace,
    write_waiting_trace,
)

from outpace.record import folder as files
from outpace.record.event_log import EventLog
from outpace.record.trace import RESTART, Trace, trace_table
from outpace.report.findings import findings
from outpace.report.page import write_report
from outpace.report.read.runs import read_runs

FAILED = {"restarts": 2, "updates_lost": 3, "resumed_from": "checkpoints/000004"}
CURVE = [(0, 0.1), (5, 0.5), (9, 0.8)]


def said(folder):
    found = findings(read_runs([folder]), None)
    return " ".join(found).replace("\N{NO-BREAK SPACE}", " ")


@pytest.fixture
def run(tmp_path):
    """Worker 1 waits for worker 0 from 110 to 300 ms; server 0 is lost for 0.5 s at 1 s."""
    folder = make_run(tmp_path / "run", accuracy=CURVE, **FAILED)
    write_waiting_trace(folder)
    waiting = files.read_table(folder / files.TRACE)
    write_interrupted_trace(folder)
    whole = pa.concat_tables([waiting, files.read_table(folder / files.TRACE)])
    files.write_table(folder / files.TRACE, whole)
    return folder


def test_scripts_that_keep_nothing_are_said_to_have_begun_anew(tmp_path):
    folder = make_run(tmp_path / "run", accuracy=CURVE, **FAILED)
    sink = trace_table(folder / files.TRACE)
    trace = Trace(sink)
    lost = {"shard": 0, "iteration": 7, "held_ns": 250_000_000, "version": 2, "clock": 2}
    trace.row(RESTART, start_ns=1_000_000_000, end_ns=1_500_000_000, **lost)
    trace.flush()
    sink.close()
    assert "2 scripts begun anew" in said(folder)


@pytest.mark.parametrize(
    "summary", [{"wall_time_s": 9.0, "restarts": 0}, {"faults": {"worker_losses": 1}}]
)
def test_a_worker_that_was_lost_for_good_is_shown_though_none_was_restarted(tmp_path, summary):
    folder = make_run(tmp_path / "run", accuracy=CURVE, **summary)
    sink = trace_table(folder / files.TRACE)
    trace = Trace(sink)
    events = EventLog()
    events.write_rows(trace, trace)
    events.add("without", role="worker-1", time_ns=4_000_000_000, updates_lost=0)
    trace.flush()
    sink.close()
    assert "first at 4.00 s (worker 1)" in said(folder)
    assert "1 worker lost for good" in said(folder)


def test_the_progress_over_time_has_a_line_at_each_interruption(run, tmp_path):
    write_report([run], tmp_path / "report.html")
    page = Page(tmp_path / "report.html")
    views = page.figures["figure-progress"]["views"].values()
    assert len(views) == 4  # accuracy and loss, against time and gradients
    for view in views:
        shapes = view["layout"].get("shapes", [])
        lines = [shape["x0"] for shape in shapes if shape.get("yref") == "paper"]
        against_time = "time" in str(view["layout"]["xaxis"]["title"])
        assert lines == ([1.0, 2.0, 3.0, 4.0] if against_time else [])
