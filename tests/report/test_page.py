"""The report as a whole: one file, complete and safe, for any end of the runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pyarrow as pa
import pytest
from tests.support.reports.run_folders import Page, make_run, write_waiting_trace

from outpace.errors import ConfigError
from outpace.record import folder as files
from outpace.record.metrics import METRICS
from outpace.report.frame import write_library
from outpace.report.page import write_report

SECTIONS = {"summary", "progress", "time-split", "timeline", "staleness", "configuration"}
HOSTILE = "<img src=x onerror=alert(1)> & </script><script>alert(2)</script> $what"


def report(tmp_path: Path, *folders: Path) -> Page:
    path = tmp_path / "report.html"
    write_report(folders, path)
    return Page(path)


def views(page: Page) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, figure in page.figures.items():
        for view in figure["views"].values():
            yield name, view


@pytest.fixture(scope="module")
def everything(simulated, tmp_path_factory) -> Page:
    """The page about all of the runs."""
    return report(tmp_path_factory.mktemp("everything"), *simulated.values())


@pytest.mark.parametrize("names", [["SSP"], ["BSP", "SSP", "ASP"]])
def test_every_section_and_figure_is_there(simulated, tmp_path, names):
    page = report(tmp_path, *(simulated[name] for name in names))
    assert page.ids >= SECTIONS
    figures = {"figure-progress", "figure-workers", "figure-timeline", "figure-staleness"}
    figures |= {"figure-split"} if len(names) > 1 else set()
    assert set(page.figures) == figures <= page.ids
    assert "digits-mlp" in page.text
    assert "4 workers · 2 servers · seed 0" in page.text
    digest = json.loads((simulated["SSP"] / files.SUMMARY).read_text())["trace_digest"]
    assert digest in page.text


def test_the_file_names_no_other_resource(everything):
    for tag, attributes in everything.tags:
        assert tag not in ("link", "iframe", "img", "base", "object"), tag
        assert not {"src", "href", "srcset", "data", "action"} & set(attributes), (tag, attributes)
    (policy,) = (
        a["content"] for t, a in everything.tags if a.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy


def test_the_pages_of_a_comparison_share_one_plotly_js(tmp_path):
    folder = make_run(tmp_path / "BSP" / "seed-0", accuracy=[(0, 0.1), (5, 0.8)])
    write_library(tmp_path)
    write_report([folder], folder / "report.html")
    sources = [a["src"] for tag, a in Page(folder / "report.html").tags if "src" in a]
    assert sources == ["../../plotly.js"]
    assert (
        (folder / "report.html").stat().st_size
        < 50_000
        < 1e6
        < (tmp_path / "plotly.js").stat().st_size
    )
    # Other content, as in a malicious folder, is not run; plotly.js is inside the page.
    (tmp_path / "plotly.js").write_text("steal()")
    write_report([folder], folder / "report.html")
    assert not any("src" in a for _, a in Page(folder / "report.html").tags)
    assert (folder / "report.html").stat().st_size > 1e6


def test_every_figure_is_one_that_plotly_accepts(everything):
    count = 0
    for name, view in views(everything):
        go.Figure(data=view["data"], layout=view["layout"])  # raises ValueError
        assert view["data"], name
        count += 1
    assert count > 10


def test_what_users_wrote_cannot_leave_its_place(tmp_path):
    plain = make_run(tmp_path / "plain", accuracy=[(0, 0.1), (5, 0.8)], error=HOSTILE)
    hostile = make_run(
        tmp_path / HOSTILE.replace("/", "∕"),
        accuracy=[(0, 0.1), (1, 0.8)],
        config={"task": {"kind": "python", "target": HOSTILE}},
        error=HOSTILE,
        status=HOSTILE,
        trace_digest=HOSTILE,
    )
    for folder in (plain, hostile):
        write_waiting_trace(folder)
    for folders in ([plain, hostile], [hostile]):
        page = report(tmp_path, *folders)
        assert "img" not in {tag for tag, _ in page.tags}
        assert page.scripts == 3  # plotly, the data, ours
        assert not any("onerror" in attributes for _, attributes in page.tags)
        assert HOSTILE in page.text
        # Plotly reads tags in its labels: names reach it escaped.
        assert "<img" not in json.dumps([t.get("name") for _, v in views(page) for t in v["data"]])


def test_half_a_surrogate_pair_does_not_hinder(tmp_path):
    folder = make_run(tmp_path / "run", error="\ud800 oh", status="failed")
    assert "? oh" in report(tmp_path, folder).text


def test_runs_of_one_name_are_told_apart(tmp_path):
    folders = [make_run(tmp_path / parent / "ASP") for parent in ("a", "b")]
    page = report(tmp_path, *folders, folders[0])
    assert [row[0] for row in page.rows[1:]] == ["a/ASP", "b/ASP", "a/ASP (2)"]


def test_differing_keys_are_listed_and_only_those(simulated, tmp_path):
    page = report(tmp_path, simulated["BSP"], simulated["SSP"])
    assert "differences" in page.ids
    table = page.text[page.text.index("Differs in") :]
    table = table[: table.index("task:")]
    assert "sync.kind bsp ssp" in table
    assert "sync.staleness – 2" in table
    assert "workers" not in table
    same = report(tmp_path, simulated["BSP"], simulated["BSP"])
    assert "The configurations are the same." in same.text
    assert page.text.count("worker_cv: 0.0") == 2  # each run's YAML


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot write the report .*absent"):
        write_report([make_run(tmp_path / "a")], tmp_path / "absent" / "report.html")


def test_values_of_several_workers_are_not_joined_by_a_line(tmp_path):
    folder = make_run(tmp_path / "run")
    logged = ((1.0, 1, 0.5), (1.0, 0, 0.6), (2.0, 1, 0.7), (2.0, 0, 0.8))
    rows = [{"time_s": at, "worker": worker, "accuracy": value} for at, worker, value in logged]
    files.write_table(folder / files.METRICS, pa.Table.from_pylist(rows, schema=METRICS))
    first, second = report(tmp_path, folder).figures["figure-progress"]["views"]["0,0"]["data"]
    assert (first["name"], first["y"]) == ("worker 1", [0.5, 0.7])
    assert (second["name"], second["y"]) == ("worker 0", [0.6, 0.8])
    other = make_run(tmp_path / "other", accuracy=[(0, 0.1), (1, 0.2)])
    page = report(tmp_path, folder, other)
    drawn, _ = page.figures["figure-progress"]["views"]["0,0"]["data"]
    assert drawn["y"] == [0.5, None, 0.6, 0.8]  # worker 1 counts until worker 0 has logged
    assert drawn["x"] == [1.0, 1.0, 1.0, 2.0]
