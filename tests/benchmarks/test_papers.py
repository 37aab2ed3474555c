"""The judges of the papers' experiments, against closed forms."""

from __future__ import annotations

import json
import math

import pytest
import torch
from benchmarks.papers.__main__ import main
from benchmarks.papers.curves import Curve, read_curve
from benchmarks.papers.experiments import EXPERIMENTS, judge_of
from benchmarks.papers.sharpness import bound, growth, sharpness

from outpace import Task
from outpace.experiment.comparison import variants_from
from outpace.experiment.running import simulate
from outpace.support.yaml_files import read_yaml


class Bowl(torch.nn.Module):
    """½ Σ λ·w², for every sample."""

    def __init__(self, eigenvalues: list[float]) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(len(eigenvalues)))
        self.register_buffer("eigenvalues", torch.tensor(eigenvalues))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return 0.5 * (self.eigenvalues * self.w**2).sum().expand(len(inputs))


def test_the_sharpness_of_a_quadratic_is_its_largest_eigenvalue():
    data = torch.zeros(4, 1), torch.zeros(4)
    task = Task(Bowl([3.0, 1.0, 0.2]), lambda output, _: output.mean(), data)
    assert sharpness(task, torch.arange(4)) == pytest.approx(3.0, rel=1e-6)


@pytest.mark.parametrize("delay", [0, 1, 7, 63])
def test_at_the_bound_delayed_descent_neither_grows_nor_shrinks(delay):
    assert growth(bound(delay), delay) == pytest.approx(1.0, abs=1e-9)
    assert growth(1.01 * bound(delay), delay) > 1 > growth(0.99 * bound(delay), delay)


def test_without_delay_the_bound_is_that_of_gradient_descent():
    assert bound(0) == pytest.approx(2.0)
    assert growth(0.5, 0) == pytest.approx(0.5)


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
    assert {name for figure in judge.FIGURES.values() for name in figure} <= names
    assert callable(judge.claims)


def test_the_command_judges_several_experiments_and_writes_their_claims(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    claims = tmp_path / "claims.json"
    names = ["fluentps-fig6", "fluentps-fig8"]
    assert main([*names, "stop.iterations=4", "--json", str(claims)]) in (0, 1)
    rows = json.loads(claims.read_text("utf-8"))
    keys = ["paper", "claim", "published", "measured", "margin", "verdict"]
    assert all(list(row) == keys for row in rows)
    assert {row["paper"] for row in rows} == set(names)
    assert "within 0.02" in {row["margin"] for row in rows}
    assert {row["verdict"] for row in rows} <= {"agrees", "differs", None}
    assert "figure 6" in capsys.readouterr().out


def test_the_command_names_what_it_does_not_know(capsys):
    with pytest.raises(SystemExit):
        main(["fluentps-fig6", "fluentps-fig0"])
    assert "no experiment fluentps-fig0; known: bdsgd-clusters" in capsys.readouterr().err
