"""The table of a report has the numbers of every run."""

from __future__ import annotations

from pathlib import Path

from tests.support.reports.run_folders import Page, make_run

from outpace.report.page import write_report


def table(tmp_path: Path, *folders: Path) -> Page:
    write_report(folders, tmp_path / "report.html")
    return Page(tmp_path / "report.html")


def test_a_table_has_the_numbers_of_every_run(tmp_path):
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
        ("time to 80 %", "fast"): "2.00 s",
        ("accuracy", "slow"): "92 %",
        ("accuracy", "fast"): "84 %",
        ("gradients/s", "slow"): "1.00",
        ("gradients/s", "fast"): "2.00",
        ("waiting", "slow"): "40 %",
        ("waiting", "fast"): "8.3 %",
        ("staleness, mean", "slow"): "0",
        ("staleness, mean", "fast"): "2.50",
        ("sent", "slow"): "1.00 kB",
        ("sent", "fast"): "2.50 MB",
    }
    assert {key: page.cell(key[1], key[0]) for key in said} == said


def test_a_run_that_missed_the_target_says_so_before_all_else(tmp_path):
    goal = {"target": {"accuracy": 0.9}}
    alone = make_run(tmp_path / "a", accuracy=[(0, 0.1), (4, 0.73)], config=goal)
    assert "Summary Time to 90 % not reached Status complete" in table(tmp_path, alone).text
    page = table(tmp_path, alone, make_run(tmp_path / "b", accuracy=[(0, 0.2)], config=goal))
    assert page.rows[0][1] == "Time to 90 %"
    assert [row[1] for row in page.rows[1:]] == ["not reached"] * 2


def test_virtual_and_wall_time_are_said_not_to_be_comparable(tmp_path):
    real = make_run(tmp_path / "real", accuracy=[(0, 0.1), (1, 0.95)], wall_time_s=1.0)
    page = table(tmp_path, make_run(tmp_path / "simulated"), real)
    assert "Times of real are wall time" in page.text
    assert "Wall time and virtual time are not comparable" in page.text


def test_the_strategy_is_said(tmp_path):
    page = table(
        tmp_path,
        make_run(tmp_path / "train"),
        make_run(tmp_path / "train-2", config={"sync": {"kind": "ssp", "staleness": 3}}),
    )
    assert page.cell("train", "strategy") == "asp"
    assert page.cell("train-2", "strategy") == "ssp"
