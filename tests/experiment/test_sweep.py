"""Sweeps: spaces, the search, early ends, resuming, and the written files."""

from __future__ import annotations

import fcntl
import json
import statistics

import msgspec
import pytest
from tests.support.command import outpace as command
from tests.support.command import refused

import outpace
from outpace.errors import ConfigError
from outpace.experiment.sweeping.space import applied, dimensions_of
from outpace.report.sweeps.page import findings

# w from 1 by gradient w, one update a second: after k seconds the loss is (1 - lr)^2k / 2.
BASE = {
    "task": {"kind": "quadratic", "eigenvalues": [1.0]},
    "workers": 2,
    "compute": {"kind": "constant", "mean_s": 1.0},
    "sync": {"kind": "bsp"},
    "optimizer": {"lr": 0.5},
    "evaluate": {"every_updates": 1},
    "stop": {"iterations": 40},
}
# The first k with (1 - lr)^2k / 2 <= 0.01, that is |1 - lr|^k <= 0.1414.
SECONDS = {0.25: 7.0, 0.5: 3.0, 0.75: 2.0, 1.9: 19.0}
TARGET = {"target_loss": 0.01, "processes": 1}


def by_lr(found):
    return {each.values["optimizer.lr"]: each for each in found.candidates}


def test_the_best_is_found_and_what_cannot_win_is_ended():
    found = outpace.sweep(BASE, {"optimizer.lr": list(SECONDS)}, parallel=2, **TARGET)
    assert found.best.values == {"optimizer.lr": 0.75}
    assert found.best.value == 2.0
    assert found.status == "complete"
    assert outpace.simulate(found.experiment).summary["time_to_target_s"] == 2.0
    known = by_lr(found)
    assert sorted(known) == sorted(SECONDS)
    for lr, each in known.items():
        if each.status == "complete":
            assert each.value == SECONDS[lr]
        else:  # at the first evaluation after the best time so far
            assert each.status == "too-slow"
            faster = [s for s in SECONDS.values() if s < each.ended_at_s]
            assert each.ended_at_s - 1 in faster
            assert each.ended_at_s <= SECONDS[lr]


def test_without_an_interval_runs_are_evaluated_as_they_go_on_and_ties_are_named():
    base = {key: value for key, value in BASE.items() if key != "evaluate"}
    found = outpace.sweep(base, {"optimizer.lr": [0.5, 0.75, 0.76]}, **TARGET)
    assert found.best.value == 2.0, "as with every_updates: 1, a fortieth of the 40 iterations"
    assert found.experiment.evaluate.every_updates == 1
    assert "evaluate has no interval, so runs are evaluated about 40 times" in found.method
    known = by_lr(found)
    (other,) = (known[lr].number for lr in (0.75, 0.76) if known[lr] is not found.best)
    assert f"cannot be told apart from candidate {other}" in findings(found)[1]
    by_time = {**base, "stop": {"virtual_time_s": 20}}
    (slow,) = outpace.sweep(by_time, {"optimizer.lr": [0.5]}, **TARGET).candidates
    assert slow.value == 3.0  # the first multiple of half a second from 3 s on


def test_failed_invalid_and_missed_candidates_are_results():
    found = outpace.sweep(BASE, {"optimizer.lr": [2.5, 1e9]}, **TARGET)
    assert {lr: each.status for lr, each in by_lr(found).items()} == {2.5: "missed", 1e9: "failed"}
    assert "finite" in by_lr(found)[1e9].error
    assert found.best is None
    strategies = [{"kind": "bsp"}, {"kind": "partial-push", "quorum": 3}]
    found = outpace.sweep(BASE, {"workers": [2, 4], "sync": strategies}, **TARGET)
    (invalid,) = (each for each in found.candidates if each.status == "invalid")
    assert invalid.values == {"workers": 2, "sync": strategies[1]}
    assert "sync.quorum must be at most 2" in invalid.error


def test_the_value_is_the_mean_over_the_seeds_of_the_same_runs():
    base = {**BASE, "compute": {"kind": "exponential", "mean_s": 1.0}, "seed": 3}
    found = outpace.sweep(base, {"optimizer.lr": [0.5]}, seeds=2, **TARGET)
    times = [
        outpace.simulate(found.experiment, seed=seed).summary["time_to_target_s"] for seed in (3, 4)
    ]
    (candidate,) = found.candidates
    assert candidate.value == pytest.approx(statistics.fmean(times))
    assert [run.time_s for run in candidate.runs] == times
    assert candidate.low < candidate.value < candidate.high


def test_a_sweep_repeats_whatever_the_number_of_processes():
    base = {**BASE, "compute": {"kind": "exponential", "mean_s": 1.0}}
    over = {"optimizer.lr": "log(0.05, 1.9)", "workers": "int(1, 3)"}
    known = {"trials": 18, "seeds": 2, "parallel": 3, "target_loss": 0.01}
    one, several = (outpace.sweep(base, over, processes=count, **known) for count in (1, 3))
    assert one.candidates == several.candidates
    assert [trial.intermediate_values for trial in one.study.trials] == [
        trial.intermediate_values for trial in several.study.trials
    ]


def test_a_candidate_behind_three_quarters_of_the_groups_before_is_pruned():
    rates = [0.3, 0.32, 0.34, 0.36, 0.38, 0.4, 0.05, 0.04, 0.06]
    given = {"stop": {"iterations": 30}, "parallel": 5, "processes": 1}
    found = outpace.sweep(BASE, {"optimizer.lr": rates}, **given)
    first, second = found.candidates[:5], found.candidates[5:]
    assert {each.status for each in first} == {"complete"}
    # The loss falls the faster, the larger the rate: of five, the slowest but one is the bound.
    bound = sorted(each.values["optimizer.lr"] for each in first)[1]
    for each in second:
        is_behind = each.values["optimizer.lr"] < bound
        assert each.status == ("pruned" if is_behind else "complete")
        assert each.ended_at_s == (3.0 if is_behind else 30.0)
    assert {each.status for each in second} == {"pruned", "complete"}
    kept = outpace.sweep(BASE, {"optimizer.lr": rates}, prune=False, **given)
    assert {each.status for each in kept.candidates} == {"complete"}


def test_a_sweep_that_was_killed_is_continued(tmp_path):
    out, over = tmp_path / "out", {"optimizer.lr": "log(0.2, 1.9)"}
    given = {**TARGET, "trials": 4, "parallel": 2}
    whole = outpace.sweep(BASE, over, out, **given)
    journal = out / "study.journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    # The first group was told, and the process was killed as it wrote the next line.
    told = [number for number, line in enumerate(lines) if json.loads(line).get("values")]
    journal.write_bytes(b"".join(lines[: told[-1]]) + b'{"op_code":')
    with journal.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="another sweep is at work"):
            outpace.sweep(BASE, over, out, resume=True, **given)
    found = outpace.sweep(BASE, over, out, resume=True, **given)
    assert len(found.candidates) == 4
    assert found.candidates[:2] == whole.candidates[:2]
    again = outpace.sweep(BASE, over, out, resume=True, **given)
    assert (again.wall_s, again.candidates) == (found.wall_s, found.candidates)


def test_an_interrupted_sweep_is_resumed_and_that_of_another_configuration_is_refused(tmp_path):
    out, said = tmp_path / "out", []

    def interrupt(line):
        said.append(line)
        if len(said) == 3:  # the method, and two candidates
            raise KeyboardInterrupt

    over = {"optimizer.lr": list(SECONDS)}
    with pytest.raises(KeyboardInterrupt):
        outpace.sweep(BASE, over, out, say=interrupt, **TARGET)
    data = json.loads((out / "sweep.json").read_text())
    assert data["status"] == "interrupted"
    assert len([c for c in data["candidates"] if c["status"] != "interrupted"]) == 2
    assert (out / "report.html").is_file()
    with pytest.raises(ConfigError, match=r"another configuration, .* batch_size"):
        outpace.sweep(BASE, over, out, batch_size=7, resume=True, **TARGET)
    with pytest.raises(ConfigError, match="is not an empty folder"):
        outpace.sweep(BASE, over, out, **TARGET)
    found = outpace.sweep(BASE, over, out, resume=True, **TARGET)
    assert sorted(by_lr(found)) == sorted(SECONDS)
    assert len(found.candidates) == len(SECONDS), "none is run twice"
    assert found.best.value == 2.0
    assert json.loads(msgspec.json.encode(found.candidates[:2])) == data["candidates"][:2]
    assert found.wall_s > data["wall_s"], "earlier sessions count"
    with pytest.raises(ConfigError, match=r"has no study\.journal"):
        outpace.sweep(BASE, over, tmp_path / "other", resume=True, **TARGET)


def test_a_budget_ends_the_sweep(tmp_path):
    endless = {**BASE, "stop": {"iterations": 300_000}}
    over = {"optimizer.lr": [1e-8, 2e-8]}
    found = outpace.sweep(endless, over, tmp_path / "out", budget_s=0.5, **TARGET)
    assert (found.status, found.best) == ("budget", None)
    assert [each.status for each in found.candidates] == ["interrupted"] * 2
    assert "The budget was spent before all" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ({}, "the space is empty"),
        ({"optimizer.lr": []}, "has no values"),
        ({"sync.stalenes": [1]}, "sync.stalenes: unknown key"),
        ({"workers": [-1]}, "workers must be at least 1"),
        ({"optimizer.lr": "log(0, 1)"}, "must be positive"),
        ({"optimizer.lr": "normal(0, 1)"}, "unknown range 'normal'"),
        ({"workers": "int(4, 2)"}, "the first number must be below the second"),
        ({"seed": [0, 1]}, "run each candidate on several with --seeds"),
        ({"args.lr": [0.1]}, "only a script has arguments"),
    ],
)
def test_a_space_that_cannot_be_tried_is_refused_in_a_line(over, words):
    with pytest.raises(ConfigError) as refusal:
        outpace.sweep(BASE, over, **TARGET)
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_values_are_read_as_yaml_and_arguments_go_to_the_script():
    space = dimensions_of(["sync={kind: bsp},{kind: ssp, staleness: 2}", "args.lr=0.1,1e-3"])
    assert [each.values for each in space] == [
        ({"kind": "bsp"}, {"kind": "ssp", "staleness": 2}),
        (0.1, 1e-3),
    ]
    script = {"task": {"kind": "script", "path": "a.py", "arguments": ["--epochs", "1"]}}
    values = {"args.lr": 0.1, "sync.kind": "ssp", "sync.staleness": 2}
    assert applied({**script, "sync": {"kind": "dsps", "buffer": "lazy"}}, values) == {
        "task": {**script["task"], "arguments": ["--epochs", "1", "--lr", "0.1"]},
        "sync": {"kind": "ssp", "staleness": 2},
    }


def test_the_command_writes_the_best_configuration_and_says_what_was_missed(tmp_path, capsys):
    config, out = tmp_path / "config.yaml", tmp_path / "out"
    config.write_text(json.dumps(BASE))
    lrs = "optimizer.lr=0.5,0.25"
    given = ("sweep", str(config), "--over", lrs, "--target-loss", "0.01")
    assert command(*given, "--out", str(out), "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data == json.loads((out / "sweep.json").read_text())
    best = next(each for each in data["candidates"] if each["number"] == data["best"])
    assert (best["values"], best["value"]) == ({"optimizer.lr": 0.5}, 3.0)
    assert command("simulate", str(out / "best.yaml"), "--out", str(tmp_path / "run")) == 0
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["time_to_target_s"] == 3.0
    assert "Sweep: optimizer.lr" in (out / "report.html").read_text()
    assert command(*given[:-1], "1e-30", "--out", str(tmp_path / "missed")) == 1
    said = capsys.readouterr().err
    # 40 iterations halve w 40 times: the loss is 2^-80 / 2 = 4.1e-25.
    assert "the best was 4.1e-25" in said
    assert "budget" in refused(capsys, *given, "--budget", "soon")
