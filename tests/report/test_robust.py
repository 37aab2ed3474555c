"""Reports over damaged folders: made from the readable parts, with a notice about the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.reports.run_folders import Page, make_run, write_waiting_trace
from typer.testing import CliRunner, Result

from outpace.cli import app
from outpace.record import folder as files

NOT_A_REPORT = "<html><title>my own page</title></html>"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(folder: str) -> Path:
    path = make_run(Path(folder), accuracy=[(0, 0.1), (5, 0.8)])
    write_waiting_trace(path)
    return path


def report(*arguments: str) -> Result:
    result = CliRunner().invoke(app, ["report", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def warnings(result: Result) -> list[str]:
    """Return the warnings and notes of a command; other threads may write lines of their own."""
    assert result.exit_code == 0, result.stderr
    return [line for line in result.stderr.splitlines() if line.startswith(("warning: ", "note: "))]


@pytest.mark.parametrize("name", [files.TRACE, files.METRICS, files.CONFIG])
@pytest.mark.parametrize("damage", ["absent", "cut", "a folder"])
def test_a_file_that_cannot_be_read_is_named_with_the_cause(here, name, damage):
    run("a")
    path = run("b") / name
    whole = path.read_bytes()
    path.unlink()
    if damage == "a folder":
        path.mkdir()
    elif damage == "cut":
        path.write_bytes(whole[: len(whole) - 9])
    if damage == "cut" and name == files.CONFIG:
        path.write_text("task: {kind: [")
    (line,) = warnings(report("a", "b"))
    assert line.startswith("warning: ")
    assert str(path) in line
    assert len(line) > len(f"warning: cannot read {path}: ")
    page = Page(here / files.REPORT)
    assert page.cell("b", "gradients") == "20"
    assert {"figure-progress", "figure-timeline"} <= set(page.figures)  # those of a


@pytest.mark.parametrize("text", [None, "{", "[" * 100_000])
def test_a_folder_without_a_readable_summary_is_refused(here, text):
    folder = run("a")
    run("b")
    (folder / files.SUMMARY).unlink()
    if text is not None:
        (folder / files.SUMMARY).write_text(text)
    for arguments in (["a"], ["b", "a"]):
        result = report(*arguments)
        assert result.exit_code == 2
        assert result.stderr.startswith("error: ")
        assert "a" in result.stderr
        assert files.SUMMARY in result.stderr
        assert not list(here.rglob(files.REPORT))


def test_a_run_of_a_comparison_without_a_summary_is_left_out_with_a_word(here):
    for name in ("all/a", "all/b", "all/c"):
        run(name)
    (here / "all" / "b" / files.SUMMARY).write_text("{")
    (here / "all" / "c" / files.SUMMARY).unlink()
    (here / "all" / "other").mkdir()
    first, second = warnings(report("all"))
    assert "cannot read all/b/summary.json: " in first
    assert "all/c is not the folder of a run: it has no summary.json; of a" in second
    assert first.endswith("this run is left out")
    assert "Run: a" in Page(here / "all" / files.REPORT).text
    (here / "all" / "a" / files.SUMMARY).unlink()
    result = report("all", "--out", "none.html")
    assert result.exit_code == 2
    assert "all/a" in result.stderr
    assert not (here / "none.html").exists()


def test_a_folder_given_twice_is_counted_once(here):
    run("a")
    run("b")
    (here / "link").symlink_to("a")
    for other in ("a", "a/", "./a", "b/../a", str(here / "a"), "link"):
        assert not warnings(report("a", other, "b"))
        assert [row[0] for row in Page(here / files.REPORT).rows[1:]] == ["a", "b"]


@pytest.mark.parametrize("folders", [("a", "b"), ("a",)])
def test_a_file_that_is_no_report_is_left_alone(here, folders):
    run("a")
    run("b")
    path = Path(files.REPORT) if len(folders) > 1 else Path("a") / files.REPORT
    path.write_text(NOT_A_REPORT)
    result = report(*folders)
    assert result.exit_code == 2
    assert str(path) in result.stderr
    assert "--out" in result.stderr
    assert path.read_text() == NOT_A_REPORT
    assert warnings(report(*folders, "--out", "other.html")) == []
    assert "Outpace" in Page(here / "other.html").text
    path.unlink()
    path.mkdir()
    assert report(*folders).exit_code == 2
