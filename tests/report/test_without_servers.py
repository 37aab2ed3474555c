"""Reports and traces of strategies without servers: communication during the computation."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.reports.perfetto import read
from tests.support.reports.run_folders import MS, Page
from tests.support.reports.timelines import by_name, drawn

from outpace.experiment.running import simulate
from outpace.report.page import write_report
from outpace.report.perfetto import write_perfetto

# Steps of 100 ms, worker 1's of 150; an all-reduce takes 2·1·40 = 80 ms.
CONFIG = {
    "task": {"kind": "timing"},
    "workers": 2,
    "compute": {
        "kind": "constant",
        "mean_s": 0.1,
        "slow": [{"workers": [1], "factor": 1.5}],
    },
    "network": {"latency_s": 0.04},
    "stop": {"iterations": 4},
}


KINDS = ("ssgd", "hpsgd", "psgd")


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("peers")
    for kind in KINDS:
        simulate({**CONFIG, "sync": {"kind": kind}}, place / kind)
    return {kind: place / kind for kind in KINDS}


def test_a_wait_without_servers_is_for_others_to_join_and_comes_first(runs):
    wait = by_name(drawn(runs["ssgd"])[0])["wait"]
    assert wait["base"][0] == 0.1
    assert wait["x"][0] == pytest.approx(0.05)
    said = wait["hovertext"][0].replace("\N{NO-BREAK SPACE}", " ")
    assert said.startswith("worker 0, iteration 0: wait 0.0500 s until all workers had joined")


def test_perfetto_has_all_reduces_beside_the_workers(runs, tmp_path):
    write_perfetto(runs["ssgd"], tmp_path / "out.gz")
    found = read(tmp_path / "out.gz")
    assert found.spans("workers/worker-0")[:3] == [
        ("compute", 0, 100 * MS),
        ("wait for all to join", 100 * MS, 150 * MS),
        ("communicate", 150 * MS, 230 * MS),
    ]
    assert found.spans("workers/worker-1")[:2] == [
        ("compute", 0, 150 * MS),
        ("communicate", 150 * MS, 230 * MS),
    ]
    assert found.spans("workers/worker-0/all-reduce")[:2] == [
        ("wait for all to join", 100 * MS, 150 * MS),
        ("all-reduce 0", 150 * MS, 230 * MS),
    ]


def test_the_table_has_synchronizations_and_overlap(runs, tmp_path):
    write_report(list(runs.values()), tmp_path / "report.html")
    page = Page(tmp_path / "report.html")
    assert page.cell("ssgd", "Synchronizations") == "4"
    assert page.cell("psgd", "Synchronizations") == "0"
    assert page.cell("ssgd", "Overlap") == "0 %"
    assert page.cell("psgd", "Overlap") == "–"
    assert float(page.cell("hpsgd", "Overlap").rstrip(" %")) > 50
