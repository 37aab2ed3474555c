"""Tests of the sentences of a report, and of the claims that it must not make."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.reports.run_folders import make_run, write_interrupted_trace, write_waiting_trace

from outpace.report.findings import findings
from outpace.report.read.runs import read_runs
from outpace.report.read.totals import totals_of
from outpace.report.target import ReportTarget, target_of

BSP = {"sync": {"kind": "bsp"}}


def said(*folders: Path) -> list[str]:
    runs = read_runs(folders)
    sentences = findings(runs, [totals_of(run) for run in runs], target_of(runs))
    return [sentence.replace("\N{NO-BREAK SPACE}", " ") for sentence in sentences]


def test_the_run_that_reached_the_common_accuracy_first_is_named_with_its_price(tmp_path):
    sentences = said(
        make_run(tmp_path / "BSP", accuracy=[(0, 0.1), (7, 0.6), (8, 0.88)], config=BSP),
        make_run(
            tmp_path / "SSP",
            accuracy=[(0, 0.1), (4, 0.81), (5, 0.86)],
            staleness={"mean": 3.1, "max": 9, "histogram": {"3": 1}},
        ),
        make_run(tmp_path / "ASP", accuracy=[(0, 0.1), (5, 0.5), (20, 0.91)]),
    )
    assert sentences[0] == "ASP ended at the highest accuracy, 91 %, SSP at the lowest, 86 %."
    assert sentences[1] == (
        "SSP reached 85 % accuracy 1.6× sooner than BSP: 5.00 s against 8.00 s of virtual time. "
        "Its gradients were 3.10 updates stale on average. "
        "(85 % is derived from the results: every run reached it.)"
    )
    assert len(sentences) == 3


def test_the_first_sentence_is_about_the_target_that_the_configuration_gives(tmp_path):
    goal = {"target": {"accuracy": 0.8}}
    sentences = said(
        make_run(tmp_path / "BSP", accuracy=[(0, 0.1), (7, 0.6), (8, 0.88)], config=BSP | goal),
        make_run(tmp_path / "SSP", accuracy=[(0, 0.1), (4, 0.81), (5, 0.86)], config=goal),
        make_run(tmp_path / "ASP", accuracy=[(0, 0.1), (5, 0.5), (20, 0.79)], config=goal),
    )
    assert sentences[0] == (
        "SSP reached 80 % accuracy 2.0× sooner than BSP: 4.00 s against 8.00 s of virtual time. "
        "ASP did not reach it."
    )


def test_the_run_that_reached_the_target_is_compared_with_the_first_where_none_is_bsp(tmp_path):
    goal = {"target": {"accuracy": 0.8}}
    (first, *_) = said(
        make_run(tmp_path / "SSP", accuracy=[(0, 0.1), (3, 0.5), (6, 0.8)], config=goal),
        make_run(tmp_path / "local", accuracy=[(0, 0.1), (1, 0.5), (2, 0.8)], config=goal),
        make_run(tmp_path / "ASP", accuracy=[(0, 0.1), (9, 0.5), (20, 0.8)], config=goal),
    )
    assert first.startswith("local reached 80 % accuracy 3.0× sooner than SSP: ")


def test_a_target_that_one_run_or_none_reached_is_said_so(tmp_path):
    def folders(name: str, accuracy: float) -> list[Path]:
        goal = {"target": {"accuracy": accuracy}}
        return [
            make_run(tmp_path / name / "BSP", accuracy=[(0, 0.1), (8, 0.88)], config=BSP | goal),
            make_run(tmp_path / name / "ASP", accuracy=[(0, 0.1), (6, 0.92)], config=goal),
        ]

    one = said(*folders("one", 0.9))
    assert one[0] == "ASP reached 90 % accuracy after 6.00 s of virtual time. BSP did not reach it."
    assert said(*folders("none", 0.95))[0] == "No run reached 95 % accuracy, the target."
    single = said(folders("single", 0.9)[0])[0]
    assert single.startswith("Did not reach 90 % accuracy, the target. Ended at 88 % accuracy")


def test_a_target_at_which_the_runs_stop_is_a_given_one(tmp_path):
    stop = {"stop": {"target_accuracy": 0.8}}
    sentences = said(
        make_run(tmp_path / "BSP", accuracy=[(0, 0.1), (7, 0.6), (8, 0.88)], config=BSP | stop),
        make_run(tmp_path / "SSP", accuracy=[(0, 0.1), (4, 0.81)], config=stop),
    )
    assert sentences[0].startswith("SSP reached 80 % accuracy 2.0× sooner than BSP: ")


def test_targets_that_contradict_each_other_are_not_used(tmp_path):
    folders = [
        make_run(
            tmp_path / str(goal),
            accuracy=[(0, 0.1), (1, 0.95)],
            config={"target": {"accuracy": goal}},
        )
        for goal in (0.8, 0.9)
    ]
    assert target_of(read_runs(folders)) == ReportTarget(0.95, given=False)


def test_a_target_can_be_a_training_loss(tmp_path):
    goal = {"target": {"loss": 1.0}}
    (first, *_) = said(
        make_run(tmp_path / "BSP", accuracy=[(4, 0.1), (8, 0.9)], config=BSP | goal),
        make_run(tmp_path / "ASP", accuracy=[(2, 0.1), (6, 0.9)], config=goal),
    )
    # The loss is 1 from the first evaluation on.
    assert first == (
        "ASP and BSP reached a training loss of 1.00 within one evaluation of each other."
    )


def test_runs_within_one_evaluation_of_each_other_are_not_called_sooner(tmp_path):
    # BSP may have reached it at any time after 3.5 s.
    goal = {"target": {"accuracy": 0.9}}
    (first, *_) = said(
        make_run(tmp_path / "BSP", accuracy=[(0, 0.1), (3.5, 0.5), (9, 0.9)], config=BSP | goal),
        make_run(tmp_path / "ASP", accuracy=[(0, 0.1), (3, 0.5), (4, 0.9)], config=goal),
    )
    assert first == "ASP and BSP reached 90 % accuracy within one evaluation of each other."
    first, *others = said(
        make_run(tmp_path / "first" / "BSP", accuracy=[(9, 0.9)], config=BSP | goal),
        make_run(tmp_path / "first" / "ASP", accuracy=[(4, 0.9)], config=goal),
    )
    assert first == "ASP and BSP reached 90 % accuracy within one evaluation of each other."
    said_so = "2 of 2 runs reached 90 % accuracy at the first log, so the resolution of the times"
    assert any(each.startswith(said_so) for each in others)


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
        make_run(tmp_path / "a", accuracy=[(0, 0.1), (1, 0.9)]),
        make_run(
            tmp_path / "b",
            accuracy=[(0, 0.1), (9, 0.8)],
            config={"task": {"kind": "digits-cnn"}},
        ),
    ]
    assert target_of(read_runs(folders)) is None
    assert not any("accuracy" in sentence for sentence in said(*folders))


def test_a_run_that_failed_neither_sets_the_target_nor_is_compared(tmp_path):
    folders = [
        make_run(tmp_path / "BSP", accuracy=[(0, 0.1), (8, 0.9)], config=BSP),
        make_run(tmp_path / "ASP", accuracy=[(0, 0.1), (1, 0.5), (2, 0.9)]),
        make_run(tmp_path / "bad", accuracy=[(0, 0.1), (0.5, 0.2)], status="failed", error="x"),
    ]
    assert target_of(read_runs(folders)) == ReportTarget(0.9, given=False)
    assert not any("bad" in sentence for sentence in said(*folders))


def test_timing_runs_are_compared_by_iterations_per_second(tmp_path):
    timing = {"task": {"kind": "timing"}}
    sentences = said(
        make_run(tmp_path / "BSP", config=timing | BSP, virtual_time_s=20.0),
        make_run(
            tmp_path / "ASP",
            config=timing,
            virtual_time_s=10.0,
            seconds={"compute": 5.0, "communicate": 1.0, "wait": 0.0},
        ),
    )
    assert sentences == [
        "ASP finished 2.0× as many iterations per second as BSP: 2.00 against 1.00.",
        "Workers waited for others in this share of their time: 40 % with BSP and 0 % with ASP.",
    ]


def test_a_single_run_says_for_whom_was_waited_and_how_stale_gradients_were(tmp_path):
    folder = make_run(
        tmp_path / "a",
        accuracy=[(0, 0.1), (5, 0.75)],
        staleness={"mean": 1.5, "max": 4, "histogram": {"1": 1, "4": 1}},
        iterations=[1, 1, 0, 0],
    )
    write_waiting_trace(folder)
    assert said(folder) == [
        "Ended at 75 % accuracy after 10.0 s of virtual time and 20 gradients (2.00 per second).",
        "Workers spent 40 % of their time waiting for others. "
        "100 % of that waiting ended when worker 0 pushed.",
        "Between reading the parameters and applying the gradient there were 1.50 updates on "
        "average, and 4 updates at most.",
    ]


def test_a_run_in_which_no_worker_waited_and_nothing_was_stale_says_so(tmp_path):
    seconds = {"compute": 5.0, "communicate": 1.0, "wait": 0.0}
    assert said(make_run(tmp_path / "a", seconds=seconds)) == [
        "Applied 20 gradients (2.00 per second) in 10.0 s of virtual time.",
        "No worker waited for another.",
        "Every gradient was applied to the parameters that it was computed from.",
    ]


def test_a_run_that_did_not_end_claims_nothing(tmp_path):
    folder = make_run(tmp_path / "a", status="failed", accuracy=[(0, 0.1), (5, 0.75)])
    assert said(folder) == [
        "This run failed. It had applied 20 gradients by 10.0 s of virtual time."
    ]


def test_speed_is_not_compared_between_virtual_and_wall_time(tmp_path):
    steps = [(0, 0.1), (4, 0.5), (5, 0.9)]
    slow = [(0, 0.1), (40, 0.5), (50, 0.9)]
    folders = [
        make_run(tmp_path / "simulated BSP", accuracy=slow, config=BSP),
        make_run(tmp_path / "simulated ASP", accuracy=steps),
        make_run(tmp_path / "real", accuracy=[(0, 0.1), (0.5, 0.9)], wall_time_s=0.5),
    ]
    assert said(*folders)[1] == (
        "simulated ASP reached 90 % accuracy 10× sooner than simulated BSP: 5.00 s against "
        "50.0 s of virtual time. (90 % is derived from the results: every run reached it.)"
    )
    assert not any("per second" in sentence for sentence in said(*folders[1:]))
    assert not any("sooner" in sentence for sentence in said(*folders[1:]))


def test_pushes_without_a_gradient_are_counted(tmp_path):
    sentences = said(make_run(tmp_path / "run", pushes_abstained=7))
    assert any(sentence.startswith("7 of the pushes carried no gradient") for sentence in sentences)
    assert not any("no gradient" in sentence for sentence in said(make_run(tmp_path / "other")))


def test_skipped_pushes_and_pulls_are_counted(tmp_path):
    sentences = said(make_run(tmp_path / "run", pushes_skipped=1700, pulls_skipped=3))
    assert "Workers chose to skip 1,700 pushes and 3 pulls." in sentences
    assert not any("skip" in sentence for sentence in said(make_run(tmp_path / "other")))


def test_a_reference_that_missed_the_target_is_not_replaced_by_another_run(tmp_path):
    goal = {"target": {"accuracy": 0.8}}
    first, *_ = said(
        make_run(tmp_path / "BSP", accuracy=[(0, 0.1), (9, 0.7)], config=BSP | goal),
        make_run(tmp_path / "SSP", accuracy=[(0, 0.1), (3, 0.5), (4, 0.81)], config=goal),
        make_run(tmp_path / "ASP", accuracy=[(0, 0.1), (7, 0.5), (8, 0.82)], config=goal),
    )
    assert first == "SSP reached 80 % accuracy after 4.00 s of virtual time. BSP did not reach it."


def test_a_run_that_was_scaled_says_so(tmp_path):
    scaled = make_run(tmp_path / "run", scalings=[[3, 2], [1, 1]])
    assert said(scaled)[1] == (
        "Scaled to 3 workers and 2 servers, then to 1 worker and 1 server; the head has the "
        "numbers of the configuration."
    )
    assert said(make_run(tmp_path / "peers", scalings=[[3, 0]]))[1].startswith(
        "Scaled to 3 workers; "
    )
    for other in ([], [[1]], "no"):
        run = make_run(tmp_path / f"{other}", scalings=other)
        assert not any("Scaled" in sentence for sentence in said(run))


def test_interruptions_are_named_with_what_they_cost(tmp_path):
    run = make_run(tmp_path / "run", restarts=2, updates_lost=3, resumed_from="checkpoints/000004")
    write_interrupted_trace(run)
    assert said(run)[1] == (
        "Interrupted: server 0 was lost at 1.00 s, and all began again from checkpoint 2 after "
        "0.500 s, to repeat 0.250 s; resumed from checkpoint 4 at 2.00 s; worker 1 was lost at "
        "3.00 s and back after 0.750 s; 1 more interruption. 3 updates of workers were lost."
    )
