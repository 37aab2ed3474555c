"""The best number of a column is marked."""

from __future__ import annotations

from pathlib import Path

from tests.support.reports.run_folders import Page, make_run

from outpace.report.page import write_report


def table(tmp_path: Path, *folders: Path) -> Page:
    write_report(folders, tmp_path / "report.html")
    return Page(tmp_path / "report.html")


def test_the_best_of_each_column_is_marked(tmp_path):
    page = table(
        tmp_path,
        make_run(
            tmp_path / "slow",
            accuracy=[(0, 0.1), (4, 0.7), (8, 0.92)],
            virtual_time_s=20.0,
            train_loss=0.2,
        ),
        make_run(
            tmp_path / "fast",
            accuracy=[(0, 0.1), (2, 0.8), (5, 0.84)],
            virtual_time_s=10.0,
            train_loss=0.4,
            staleness={"mean": 2.5, "max": 7, "histogram": {"2": 10, "3": 10}},
            seconds={"compute": 5.0, "communicate": 0.5, "wait": 0.5},
            bytes_sent=2_500_000,
        ),
    )
    said = {
        ("time to 80 %", "slow"): "8.00 s",
        ("time to 80 %", "fast"): "2.00 s★",
        ("accuracy", "slow"): "92 %★",
        ("accuracy", "fast"): "84 %",
        ("gradients/s", "slow"): "1.00",
        ("gradients/s", "fast"): "2.00★",
        ("waiting", "slow"): "40 %",
        ("waiting", "fast"): "8.3 %★",
        ("staleness, mean", "slow"): "0★",
        ("staleness, mean", "fast"): "2.50",
        ("sent", "slow"): "1.00 kB★",
        ("sent", "fast"): "2.50 MB",
    }
    assert {key: page.cell(key[1], key[0]) for key in said} == said
    assert "★ best of its column among the complete runs" in page.text


def test_a_run_that_is_not_complete_is_never_the_best(tmp_path):
    page = table(
        tmp_path,
        make_run(tmp_path / "a", virtual_time_s=10.0),
        make_run(tmp_path / "b", virtual_time_s=8.0),
        make_run(tmp_path / "c", virtual_time_s=1.0, status="failed", error="diverged"),
        make_run(tmp_path / "d", virtual_time_s=1.0, status="partial"),
    )
    times = {name: page.cell(name, "virtual time") for name in "abcd"}
    assert times == {"a": "10.0 s", "b": "8.00 s★", "c": "1.00 s", "d": "1.00 s"}


def test_equals_share_the_mark_but_no_run_is_best_where_all_are_equal(tmp_path):
    folders = [
        make_run(tmp_path / name, virtual_time_s=time_s)
        for name, time_s in (("a", 5.0), ("b", 5.0), ("c", 6.0))
    ]
    page = table(tmp_path, *folders)
    assert [page.cell(name, "virtual time") for name in "abc"] == ["5.00 s★", "5.00 s★", "6.00 s"]
    assert [page.cell(name, "sent") for name in "abc"] == ["1.00 kB"] * 3


def test_totals_are_not_judged_between_runs_that_did_not_do_the_same_work(tmp_path):
    page = table(
        tmp_path,
        make_run(tmp_path / "long", gradients_applied=20, virtual_time_s=10.0, bytes_sent=100),
        make_run(tmp_path / "short", gradients_applied=2, virtual_time_s=2.0, bytes_sent=10),
    )
    assert page.cell("short", "virtual time") == "2.00 s"
    assert page.cell("short", "sent") == "10.0 B"
    assert page.cell("long", "gradients/s") == "2.00★"


def test_a_run_that_missed_the_target_says_so_before_all_else(tmp_path):
    goal = {"target": {"accuracy": 0.9}}
    alone = make_run(tmp_path / "a", accuracy=[(0, 0.1), (4, 0.73)], config=goal)
    assert "Summary Time to 90 % not reached Status complete" in table(tmp_path, alone).text
    page = table(tmp_path, alone, make_run(tmp_path / "b", accuracy=[(0, 0.2)], config=goal))
    assert page.rows[0][1] == "Time to 90 %"
    assert [row[1] for row in page.rows[1:]] == ["not reached"] * 2


def test_times_are_not_judged_between_virtual_and_wall_time(tmp_path):
    page = table(
        tmp_path,
        make_run(tmp_path / "simulated", accuracy=[(0, 0.1), (5, 0.9)]),
        make_run(
            tmp_path / "real",
            accuracy=[(0, 0.1), (1, 0.95)],
            wall_time_s=1.0,
            seconds={"compute": 0.5, "communicate": 0.1, "wait": 0.1},
        ),
    )
    for column in ("Gradients/s", "Waiting"):
        assert "★" not in page.cell("real", column) + page.cell("simulated", column)
    assert page.cell("real", "accuracy") == "95 %★"


def test_the_strategy_is_said(tmp_path):
    page = table(
        tmp_path,
        make_run(tmp_path / "train"),
        make_run(tmp_path / "train-2", config={"sync": {"kind": "ssp", "staleness": 3}}),
    )
    assert page.cell("train", "strategy") == "asp"
    assert page.cell("train-2", "strategy") == "ssp"
