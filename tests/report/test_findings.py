"""Tests of the sentences of a report, and of the claims that it must not make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.reports.run_folders import make_run, write_interrupted_trace

from outpace.report.findings import findings
from outpace.report.read.runs import read_runs
from outpace.report.target import ReportTarget, target_of

BSP = {"sync": {"kind": "bsp"}}
GOAL = {"target": {"accuracy": 0.8}}
NO_WAIT = {"seconds": {"compute": 5.0, "communicate": 1.0, "wait": 0.0}}


def said(*folders: Path) -> list[str]:
    runs = read_runs(folders)
    found = findings(runs, target_of(runs))
    return [each.replace("\N{NO-BREAK SPACE}", " ") for each in found]


def three(tmp_path: Path, goal: dict[str, Any]) -> list[Path]:
    """BSP reaches 80 % at 8 s, SSP at 4 s, ASP never."""
    return [
        make_run(tmp_path / "BSP", accuracy=[(0, 0.1), (7, 0.6), (8, 0.88)], config=BSP | goal),
        make_run(tmp_path / "SSP", accuracy=[(0, 0.1), (4, 0.81), (5, 0.86)], config=goal),
        make_run(tmp_path / "ASP", accuracy=[(0, 0.1), (5, 0.5), (20, 0.79)], config=goal),
    ]


@pytest.mark.parametrize("goal", [GOAL, {"stop": {"target_accuracy": 0.8}}])
def test_the_answer_comes_first_and_the_runs_that_missed_the_target_second(tmp_path, goal):
    folders = three(tmp_path, goal)
    assert said(*folders) == [
        "Time to 80 % accuracy, in virtual time: SSP 4.00 s and BSP 8.00 s.",
        "80 % accuracy was not reached by ASP.",
        "Workers of SSP waited for others in 40 % of their time, the largest share of all runs.",
    ]
    assert said(folders[0])[0] == "Time to 80 % accuracy, in virtual time: BSP 8.00 s."
    assert said(folders[2])[0] == "80 % accuracy was not reached by ASP."
    assert said(folders[1])[-1] == "Workers waited for others in 40 % of their time."


def test_a_target_that_is_derived_from_the_results_is_said_to_be_so(tmp_path):
    sentence, *_ = said(*three(tmp_path, {}))
    assert sentence == (
        "Time to 75 % accuracy, in virtual time: SSP 4.00 s, ASP 20.0 s (within one evaluation of "
        "BSP) and BSP 8.00 s. 75 % is derived from the results: every run reached it."
    )


def test_only_runs_on_the_clock_of_the_reference_are_compared(tmp_path):
    folders = three(tmp_path, GOAL)[:2]
    real = make_run(
        tmp_path / "real", accuracy=[(0, 0.1), (0.5, 0.9)], wall_time_s=0.5, config=GOAL
    )
    assert said(*folders, real)[0] == (
        "Time to 80 % accuracy, in virtual time: SSP 4.00 s and BSP 8.00 s."
    )


def test_runs_within_one_evaluation_of_each_other_are_not_called_sooner(tmp_path):
    # BSP may have reached it at any time after 3.5 s.
    goal = {"target": {"accuracy": 0.9}}
    first, *_ = said(
        make_run(tmp_path / "BSP", accuracy=[(0, 0.1), (3.5, 0.5), (9, 0.9)], config=BSP | goal),
        make_run(tmp_path / "ASP", accuracy=[(0, 0.1), (3, 0.5), (4, 0.9)], config=goal),
    )
    assert first == (
        "Time to 90 % accuracy, in virtual time: ASP 4.00 s (within one evaluation of BSP) and "
        "BSP 9.00 s."
    )


def test_a_target_reached_at_the_first_log_has_the_resolution_of_one_log(tmp_path):
    goal = {"target": {"loss": 1.0}}  # the loss is 1 from the first evaluation on
    _, second, *_ = said(
        make_run(tmp_path / "BSP", accuracy=[(9, 0.9)], config=BSP | goal),
        make_run(tmp_path / "ASP", accuracy=[(4, 0.9)], config=goal),
    )
    assert second.startswith(
        "2 of 2 runs reached a training loss of 1.00 at the first log, so the resolution of the "
        "times is one log: "
    )


def test_targets_that_contradict_each_other_are_not_used(tmp_path):
    folders = [
        make_run(
            tmp_path / f"{goal}",
            accuracy=[(0, 0.1), (1, 0.95)],
            config={"target": {"accuracy": goal}},
        )
        for goal in (0.8, 0.9)
    ]
    assert target_of(read_runs(folders)) == ReportTarget(0.95, given=False)


@pytest.mark.parametrize(
    ("first", "second", "target"),
    [
        ([(0, 0.1), (1, 0.87)], [(0, 0.1), (1, 0.99)], 0.85),
        ([(0, 0.1), (1, 0.95), (2, 0.5)], [(0, 0.1), (1, 0.976)], 0.95),  # the best, not the last
        ([(0, 0.1), (1, 0.9956)], [(0, 0.1), (1, 1.0)], 0.995),
        ([(0, 0.1), (1, 0.12)], [(0, 0.1), (1, 0.99)], None),  # had from the start
        ([(0, 0.1), (1, 0.9)], [], None),
    ],
)
def test_the_target_is_what_all_reached_rounded_down(tmp_path, first, second, target):
    folders = [make_run(tmp_path / "a", accuracy=first), make_run(tmp_path / "b", accuracy=second)]
    found = target_of(read_runs(folders))
    assert found == (None if target is None else ReportTarget(target, given=False))


def test_accuracies_of_different_tasks_are_not_compared(tmp_path):
    folders = [
        make_run(tmp_path / kind, accuracy=[(0, 0.1), (1, 0.9)], config={"task": {"kind": kind}})
        for kind in ("digits-mlp", "digits-cnn")
    ]
    assert target_of(read_runs(folders)) is None
    assert not any("accuracy" in sentence for sentence in said(*folders))


def test_a_run_that_is_not_complete_is_not_compared_and_says_how_it_is_resumed(tmp_path):
    done = make_run(tmp_path / "BSP", accuracy=[(0, 0.1), (8, 0.9)], config=BSP | GOAL, **NO_WAIT)
    curve = [(0, 0.1), (0.5, 0.2)]
    bad = make_run(tmp_path / "bad", accuracy=curve, status="failed", config=GOAL)
    assert said(done, bad)[1:] == ["Not complete: bad (failed)."]
    command = "outpace run --resume runs/cut"
    cut = make_run(tmp_path / "cut", accuracy=curve, status="partial", resume=command)
    assert said(cut, bad)[0] == (
        f"Not complete: cut (partial), bad (failed). Resume cut with: {command}"
    )


def test_a_run_that_was_scaled_warns_of_the_head_of_the_page(tmp_path):
    folder = make_run(tmp_path / "run", scalings=[[3, 2], [1, 1]], **NO_WAIT)
    assert said(folder) == [
        "The number of processes of run changed during the run: the head of this page has the "
        "numbers of the configuration."
    ]
    assert not said(make_run(tmp_path / "other", scalings=[], **NO_WAIT))


def test_interruptions_are_counted_with_what_they_cost(tmp_path):
    lost = {"restarts": 2, "updates_lost": 3, "resumed_from": "checkpoints/000004"}
    run = make_run(tmp_path / "run", **NO_WAIT, **lost)
    write_interrupted_trace(run)
    assert said(run) == [
        "run was interrupted 4 times, first at 1.00 s (server 0): processes were away for 1.25 s, "
        "0.250 s of the run was repeated, 3 updates lost and 1 worker lost for good."
    ]
