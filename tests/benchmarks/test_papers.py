"""The judges of the papers' experiments, against closed forms."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path

import pytest
from benchmarks.papers import __main__ as command
from benchmarks.papers import results
from benchmarks.papers.__main__ import main
from benchmarks.papers.claims import UNDECIDED, Claim
from benchmarks.papers.curves import Curve, read_curve
from benchmarks.papers.experiments import EXPERIMENTS, judge_of
from benchmarks.papers.over_seeds import Spread, all_of

from benchmarks import recorded
from outpace.errors import ConfigError, RunError
from outpace.experiment.comparison import variants_from
from outpace.experiment.running import simulate
from outpace.support.yaml_files import read_yaml


def test_a_curve_says_how_long_it_was_above_a_loss():
    curve = Curve("a", 2, [0.0, 1.0, 2.0, 3.0], [0.0, 10.0, 20.0, 30.0], [2.0, 1.0, 0.5, 0.7], None)
    assert curve.seconds_above(0.75) == pytest.approx(1.5)
    assert curve.seconds_above(0.6) == pytest.approx(1.8 + 0.5)  # it comes up again
    assert curve.gradients_above(1.5) == pytest.approx(5.0)
    assert curve.seconds_above(0.1) == math.inf
    assert curve.final == pytest.approx(0.7)


def test_a_curve_is_read_from_the_folder_of_a_run(tmp_path):
    result = simulate(
        {
            "task": {"kind": "digits-mlp"},
            "workers": 2,
            "sync": {"kind": "bsp"},
            "compute": {"kind": "constant", "mean_s": 1.0},
            "evaluate": {"every_updates": 2},
            "stop": {"iterations": 4},
        },
        tmp_path / "run",
    )
    curve = read_curve(tmp_path / "run")
    assert (curve.name, curve.workers, curve.error) == ("run", 2, None)
    assert curve.seconds == [0.0, 2.0, 4.0]
    assert curve.gradients == [0.0, 2.0, 4.0]
    assert curve.loss == result.metrics["test_loss"].to_pylist()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_experiments_of_a_paper_are_valid_and_have_a_judge(name):
    path, judge = EXPERIMENTS[name], judge_of(name)
    if hasattr(judge, "run"):
        pytest.skip("measures by itself: it has tests of its own")
    variants = variants_from(read_yaml(path), str(path), path.parent)
    names = {variant.name for variant in variants}
    assert len(names) == len(variants) > 1
    assert callable(judge.claims)


def test_the_command_judges_several_experiments_and_writes_their_claims(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    claims = tmp_path / "claims.json"
    names = ["fluentps-fig6", "fluentps-fig8"]
    assert main([*names, "stop.iterations=4", "seeds=1", "--json", str(claims)]) in (0, 1)
    rows = json.loads(claims.read_text("utf-8"))
    keys = ["paper", "claim", "published", "measured", "margin", "verdict"]
    assert all(list(row) == keys for row in rows)
    assert {row["paper"] for row in rows} == set(names)
    assert "within 0.12" in {row["margin"] for row in rows}
    assert {row["verdict"] for row in rows} <= {"agrees", "differs", None}
    assert "figure 6" in capsys.readouterr().out


def test_a_recorded_result_says_when_and_with_which_code_it_was_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    claims = [
        Claim("figure 8", "1.21 times", "1.20", True, margin="within 0.02"),
        Claim("figure 8", "a|b", "1.5", False),
        Claim("figure 8", "faster", "1.1 ± 0.2", UNDECIDED),
        Claim("figure 8", "shown", "3 s", None),
    ]
    results.record("fluentps-fig8", claims, 3, {"date": "2026-01-02", "commit": "abc1234+"})
    before, table = results.page(results.kept()).split("## FluentPS")
    assert "Of 3 claims that are judged, 1 agree, 1 differ (bold), 1 are not decided" in before
    assert "fluentps-fig9" in before
    assert table.rstrip().split("\n")[2:] == [
        "`fluentps-fig8`, 2026-01-02, commit abc1234+, 3 seeds:",
        "",
        "| where | published | measured | margin | |",
        "|---|---|---|---|---|",
        "| figure 8 | 1.21 times | 1.20 | within 0.02 | agrees |",
        "| figure 8 | **a\\|b** | 1.5 |  | **differs** |",
        "| figure 8 | faster | 1.1 ± 0.2 |  | undecided |",
        "| figure 8 | shown | 3 s |  |  |",
    ]


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Return a function that runs git in a repository with code, a README and no result."""

    def git(*words):
        subprocess.run(["git", "-C", tmp_path, *words], check=True, capture_output=True)

    papers = tmp_path / "benchmarks" / "papers"
    for folder in (tmp_path / "src", papers / "bdsgd", papers / "results", papers / "psp"):
        folder.mkdir(parents=True)
        (folder / "code.py").write_text("1\n")
    monkeypatch.setattr(recorded, "ROOT", tmp_path)
    monkeypatch.setattr(results, "FOLDER", papers / "results")
    experiments = {"bdsgd-fig5": papers / "bdsgd" / "fig5.yaml", "psp-fig2": papers / "psp" / "f"}
    monkeypatch.setattr(results, "EXPERIMENTS", experiments)
    git("init", "-q")
    git("config", "user.name", "a")
    git("config", "user.email", "a@b")
    git("add", "-A")
    git("commit", "-qm", "code")
    return git


def test_a_result_written_before_does_not_make_the_code_another_one(repository):
    (results.FOLDER / "code.py").write_text("2\n")  # it is in the folder of results
    first = recorded.origin()
    assert "+" not in first["commit"]
    (recorded.ROOT / "src" / "code.py").write_text("2\n")
    assert recorded.origin()["commit"] == first["commit"] + "+"


def test_a_result_is_current_until_code_that_it_depends_on_changes(repository):
    papers = results.FOLDER.parent
    assert not results.is_current("bdsgd-fig5")
    results.record("bdsgd-fig5", [Claim("figure 5", "1", "1", True)], 1, recorded.origin())
    (papers / "psp" / "code.py").write_text("2\n")
    repository("commit", "-qam", "another paper")
    assert results.is_current("bdsgd-fig5")
    assert not results.is_current("psp-fig2")
    (papers / "bdsgd" / "code.py").write_text("2\n")
    assert not results.is_current("bdsgd-fig5")
    repository("commit", "-qam", "this paper")
    assert not results.is_current("bdsgd-fig5")


@pytest.fixture
def three_experiments(tmp_path, monkeypatch):
    """Return the names of the experiments that were run; each measures nothing and agrees."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(results, "FOLDER", tmp_path / "results")
    monkeypatch.setattr(results, "write_table", lambda: None)
    monkeypatch.setattr(command, "origin", lambda: {"date": "2026-01-02", "commit": "abc1234"})
    ran = []
    for name in THREE:

        def run(data, out, name=name):
            ran.append(name)
            return [Claim("table", "1", "1", True)]

        monkeypatch.setattr(judge_of(name), "run", run, raising=False)
    return ran


THREE = ["fluentps-fig6", "fluentps-fig7", "fluentps-fig8"]


def stopped_by(error):
    def run(data, out):
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (RunError("no server answered"), 1, "no server answered"),
        (ConfigError("seed must be a number"), 2, "seed must be a number"),
        (ZeroDivisionError("division by zero"), 1, "ZeroDivisionError: division by zero"),
    ],
)
def test_a_failed_experiment_is_reported_at_the_end_and_the_others_are_run(
    error, code, text, three_experiments, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(judge_of(THREE[1]), "run", stopped_by(error))
    assert main([*THREE, "--record", "--json", "claims.json"]) == code
    assert three_experiments == [THREE[0], THREE[2]]
    assert {path.stem for path in (tmp_path / "results").iterdir()} == {THREE[0], THREE[2]}
    assert {row["paper"] for row in json.loads(Path("claims.json").read_text("utf-8"))} == {
        THREE[0],
        THREE[2],
    }
    assert capsys.readouterr().err.endswith(f"error: {THREE[1]}: {text}\n")


def test_after_an_interruption_only_what_is_missing_is_run(
    three_experiments, tmp_path, monkeypatch, capsys
):
    run = judge_of(THREE[1]).run
    monkeypatch.setattr(judge_of(THREE[1]), "run", stopped_by(KeyboardInterrupt()))
    assert main([*THREE, "--record"]) == 130
    assert f"without a result: {THREE[1]}, {THREE[2]}" in capsys.readouterr().err
    monkeypatch.setattr(judge_of(THREE[1]), "run", run)
    monkeypatch.setattr(
        results, "is_current", lambda name: (results.FOLDER / f"{name}.json").is_file()
    )
    assert main([*THREE, "--record", "--missing"]) == 0
    assert three_experiments == THREE


def test_changed_experiments_are_not_recorded(capsys):
    with pytest.raises(SystemExit):
        main(["fluentps-fig8", "stop.iterations=4", "--record"])
    assert "not recorded" in capsys.readouterr().err


def test_a_spread_gives_mean_and_standard_error_by_hand():
    # 1, 2, 6: mean 3, variance (4 + 1 + 9) / 2 = 7, error sqrt(7 / 3) = 1.5275
    assert f"{Spread((1.0, 2.0, 6.0)):.2f}" == "3.00 ± 1.53"
    assert f"{Spread((1.0,)):.2f}" == "1.00"
    assert f"{Spread((1.0, 2.0, 6.0)):+.1f}" == "+3.0 ± 1.5"
    assert f"{Spread((1.0, math.inf)):.2f}" == "never in 1 of 2 runs"
    assert Spread((1.0, 2.0, 6.0)).near(3.4, 0.5)
    assert not Spread((1.0, 2.0, 6.0)).near(3.6, 0.5)


def test_two_spreads_are_compared_by_the_pairs_of_equal_seeds():
    a = Spread((1.0, 2.0, 6.0))
    assert (Spread((2.0, 2.0, 3.0)) / a).values == (2.0, 1.0, 0.5)
    # The values overlap, the differences 0.9, 1.0, 1.1 do not reach 0: 1.0 ± 4.30 x 0.058.
    b = Spread((1.9, 3.0, 7.1))
    assert a.below(b) is True
    assert b.below(a) is False
    # -0.5, 0.5, 1.0: mean 0.33, error 0.44.
    assert a.below(Spread((0.5, 2.5, 7.0))) == UNDECIDED
    assert Spread((1.0,)).below(Spread((2.0,))) is True
    assert a.below(math.inf) is True


def test_verdicts_are_joined_with_the_worst_one():
    assert all_of([True, True]) is True
    assert all_of([True, UNDECIDED]) == UNDECIDED
    assert all_of([UNDECIDED, False, True]) is False
