"""Reports about comparisons over several seeds: each variant once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.command import outpace as command
from tests.support.reports.run_folders import Page, make_run

from outpace.experiment.comparison import compare, variants_from
from outpace.record import folder as files
from outpace.report.page import write_report
from outpace.report.read.folders import runs_in

GOAL = {"target": {"accuracy": 0.8}}
NOT_KNOWN = {"mean": None, "low": None, "high": None}


def about(name: str, seeds: int = 2, **known: Any) -> dict[str, Any]:
    """An entry of comparison.json; time, accuracy and ratio are (mean, low, high)."""
    estimates = {
        key: dict(zip(("mean", "low", "high"), known.pop(key), strict=True))
        if key in known
        else NOT_KNOWN
        for key in ("time_to_target_s", "accuracy", "ratio_to_first")
    }
    rest = {"failed": 0, "missed": 0, "distinguishable": None, **known}
    return {"name": name, "seeds": seeds, **estimates, **rest}


def runs(
    folder: Path, variant: str, reached_s: Sequence[float | None], **more: Any
) -> Sequence[Path]:
    """Runs of a variant with seeds 0, 1, ..., each from 10 % accuracy to 81 % at a time.

    A run that misses the target ends with 50 % at 10 s.
    """
    config = {**GOAL, **more.pop("config", {})}
    made = []
    for seed, time_s in enumerate(reached_s):
        steps = [(0.0, 0.1), (10.0, 0.5) if time_s is None else (time_s, 0.81)]
        place = folder / variant / f"seed-{seed}"
        made.append(make_run(place, accuracy=steps, config={**config, "seed": seed}, **more))
    return made


def page_of(folder: Path, *entries: dict[str, Any]) -> Page:
    files.write_json(folder / files.COMPARISON, list(entries))
    found, problems = runs_in([folder])
    assert not problems
    write_report(found, folder / files.REPORT)
    return Page(folder / files.REPORT)


@pytest.fixture(scope="module")
def three(tmp_path_factory) -> Page:
    """BSP, ASP that is sooner, SSP without a clear difference, and one that misses the target."""
    tmp_path = tmp_path_factory.mktemp("three")
    runs(tmp_path, "BSP", [8.0, 8.0], config={"sync": {"kind": "bsp"}})
    runs(tmp_path, "ASP", [4.0, 4.0])
    runs(tmp_path, "SSP", [6.0, 9.0])
    runs(tmp_path, "late", [9.0, None])
    return page_of(
        tmp_path,
        about("BSP", time_to_target_s=(8.0, 7.5, 8.5), ratio_to_first=(1.0, 1.0, 1.0)),
        about(
            "SSP",
            time_to_target_s=(7.5, -11.6, 26.6),
            ratio_to_first=(0.92, 0.07, 12.1),
            distinguishable=False,
        ),
        about(
            "ASP",
            time_to_target_s=(4.0, 3.8, 4.2),
            ratio_to_first=(0.5, 0.4, 0.625),
            accuracy=(0.81, 0.8, 0.82),
            distinguishable=True,
        ),
        about(
            "late",
            missed=1,
            time_to_target_s=(9.5, 3.1, None),
            ratio_to_first=(1.19, 0.6, None),
            distinguishable=False,
        ),
    )


def test_each_variant_is_a_row_with_means_and_intervals_in_the_order_of_the_comparison(three):
    assert [row[0] for row in three.rows] == ["Variant", "BSP", "SSP", "ASP", "late"]
    assert three.cell("BSP", "status") == "complete2 seeds"
    assert three.cell("BSP", "time to 80 %") == "8.00 s7.50 to 8.50 s"
    assert three.cell("ASP", "accuracy") == "81 %80 to 82 %"
    assert three.cell("BSP", "time / BSP") == "1.00"
    assert three.cell("SSP", "time / BSP") == "0.920.07 to 12.10\nnot distinguishable"
    assert three.cell("ASP", "time / BSP") == "0.500.40 to 0.62"


def test_a_missed_target_is_a_lower_bound(three):
    assert three.cell("late", "time to 80 %") == "at least 9.50 s1 of 2 missed it"
    assert three.cell("late", "time / BSP").startswith("at least 1.19")


def test_the_first_sentence_compares_with_the_first_variant_with_intervals(three):
    assert (
        "Time to 80 % accuracy, in virtual time: ASP 4.00 s (0.50 times that of BSP, 0.40 to 0.62),"
        " SSP 7.50 s (0.92 times that of BSP, 0.07 to 12.10, not distinguishable), late at least "
        "9.50 s (at least 1.19 times that of BSP, not distinguishable) and BSP 8.00 s. "
        "Means and 95 % intervals are over 2 seeds."
    ) in three.text
    assert "80 % accuracy was not reached by late (1 of 2 runs)." in three.text


def test_a_first_variant_that_missed_the_target_bounds_the_ratio(tmp_path):
    runs(tmp_path, "BSP", [None, None])
    runs(tmp_path, "ASP", [4.0, 4.0])
    late = about("BSP", missed=2, time_to_target_s=(10.0, 9.0, None))
    ratio = {"ratio_to_first": (0.4, None, 0.5), "distinguishable": True}
    page = page_of(tmp_path, late, about("ASP", time_to_target_s=(4.0, 3.8, 4.2), **ratio))
    assert "ASP 4.00 s (at most 0.40 times that of BSP) and BSP at least 10.0 s." in page.text
    assert page.cell("ASP", "time / BSP") == "at most 0.40"


def test_a_derived_target_is_labelled_and_has_no_ratio(tmp_path):
    for name, times in (("BSP", [8.0, 8.0]), ("ASP", [4.0, 4.0])):
        runs(tmp_path, name, times, config={"target": None})
    alike = {"accuracy": (0.81, 0.81, 0.81), "distinguishable": False}
    page = page_of(tmp_path, about("BSP", accuracy=(0.81, 0.81, 0.81)), about("ASP", **alike))
    assert page.cell("ASP", "time to 80 %") == "4.00 s"
    assert "The target, 80 %, is derived from the results: every run reached it." in page.text
    assert "ASP 4.00 s and BSP 8.00 s." in page.text
    assert page.cell("ASP", "accuracy").endswith("not distinguishable")


def test_failed_runs_are_counted_and_not_in_the_means(tmp_path):
    runs(tmp_path, "BSP", [8.0, 8.0])
    runs(tmp_path, "bad", [8.0, 8.0], train_loss=0.5)
    folder = tmp_path / "bad" / "seed-1"
    summary = {**files.read_summary(folder), "train_loss": 9.0, "status": "failed"}
    files.write_summary(folder, {**summary, "error": "a loss stopped being finite"})
    page = page_of(tmp_path, about("BSP"), about("bad", failed=1))
    assert page.cell("bad", "status") == "1 of 2 runs failed2 seeds"
    assert page.cell("bad", "train loss") == "0.500"
    assert "bad 1 of 2 runs failed: a loss stopped being finite" in page.text


def test_curves_are_means_with_bands_from_the_lowest_to_the_highest_seed(tmp_path):
    # At 4 s seed 0 has 81 % and seed 1, half way from 10 to 81 % at 8 s, 45.5 %. Seed 0 keeps its
    # last value until seed 1 has also ended.
    runs(tmp_path, "BSP", [4.0, 8.0])
    page = page_of(tmp_path, about("BSP"))
    band, line = page.figures["figure-progress"]["views"]["0,0"]["data"]
    assert line["x"] == [0, 4, 8]
    assert line["y"] == pytest.approx([0.1, 0.6325, 0.81])
    assert band["x"] == [0, 4, 8, 8, 4, 0]
    assert band["y"] == pytest.approx([0.1, 0.81, 0.81, 0.81, 0.455, 0.1])
    assert line["name"] == "BSP"


def test_the_command_writes_the_same_page_as_the_comparison(tmp_path):
    base = {
        "task": {"kind": "quadratic", "eigenvalues": [1.0]},
        "workers": 2,
        "compute": {"kind": "exponential", "mean_s": 1.0},
        "sync": {"kind": "bsp"},
        "optimizer": {"lr": 0.5},
        "evaluate": {"every_updates": 1},
        "target": {"loss": 0.01},
        "stop": {"iterations": 12},
        "variants": [{"name": "BSP"}, {"name": "ASP", "sync": {"kind": "asp"}}],
    }
    out = tmp_path / "out"
    compare(variants_from(base, "the test", Path()), out, seeds=3)
    first = (out / files.REPORT).read_text()
    page = Page(out / files.REPORT)
    assert [row[0] for row in page.rows[1:]] == ["BSP", "ASP"]
    for entry in json.loads((out / files.COMPARISON).read_text()):
        low, high = (entry["ratio_to_first"][end] for end in ("low", "high"))
        if entry["name"] != "BSP":
            assert f"{low:.2f} to {high:.2f}" in page.cell(entry["name"], "time / BSP")
    assert command("report", str(out)) == 0
    assert (out / files.REPORT).read_text() == first
    # One variant alone: its runs.
    assert command("report", str(out / "ASP")) == 0
    alone = Page(out / "ASP" / files.REPORT)
    assert [row[0] for row in alone.rows[1:]] == ["seed-0", "seed-1", "seed-2"]


def test_an_interrupted_comparison_gives_a_page_about_the_runs_that_ended(tmp_path, capsys):
    runs(tmp_path, "BSP", [8.0, 8.0, 8.0])
    runs(tmp_path, "ASP", [4.0])
    runs(tmp_path, "SSP", [4.0], status="partial")
    one = {"time_to_target_s": (4.0, None, None), "ratio_to_first": (0.5, None, None)}
    page = page_of(tmp_path, about("BSP", 3), about("ASP", 1, **one))
    status = page.rows[0].index("Status")
    assert [[row[0], row[status]] for row in page.rows[1:]] == [
        ["BSP", "complete3 seeds"],
        ["ASP", "complete1 seed"],
    ]
    assert "ASP 4.00 s (0.50 times that of BSP, with one seed in common)" in page.text
    # Killed between a run's end and the next comparison.json: its intervals are not used.
    page_of(tmp_path, about("BSP", 2, time_to_target_s=(8.0, 7.0, 9.0)), about("ASP", 1))
    assert command("report", str(tmp_path)) == 0
    assert "is not about the 3 runs of BSP that ended" in capsys.readouterr().err
    assert Page(tmp_path / files.REPORT).cell("BSP", "time to 80 %") == "8.00 s"
    # Killed before that file existed: every run is shown separately.
    (tmp_path / files.COMPARISON).unlink()
    assert command("report", str(tmp_path)) == 0
    names = [row[0] for row in Page(tmp_path / files.REPORT).rows[1:]]
    assert len(names) == 5
    assert "BSP/seed-2" in names or "seed-2" in names


@pytest.mark.parametrize("text", ["{", "[1]", '[{"name": "BSP", "seeds": {}}]'])
def test_a_damaged_comparison_breaks_nothing(tmp_path, text):
    found = runs(tmp_path, "BSP", [8.0, 8.0])
    (tmp_path / files.COMPARISON).write_text(text)
    write_report(found, tmp_path / files.REPORT)
    assert Page(tmp_path / files.REPORT).rows
