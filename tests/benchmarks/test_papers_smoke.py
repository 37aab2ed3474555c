"""Experiments of papers from the command to the verdict, in seconds.

Others are run by test_papers_fluentps and test_papers_psp, and judged by the tests of their gates.
"""

from __future__ import annotations

import json

import pytest
from benchmarks.papers.__main__ import main
from benchmarks.papers.experiments import EXPERIMENTS, judge_of

TIMES_ONLY = "task={kind: timing, parameters: 1000}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("bdsgd-rules", ["repeats=1", "clusters=[i]", "rules=[last-5, rolling hedge]"]),
        ("fluentps-fig10", [TIMES_ONLY, "seeds=1", "stop.iterations=3"]),
        ("fluentps-models", [TIMES_ONLY, "seeds=1", "stop={virtual_time_s: 42.0}"]),
        ("psp-discussion", ["seeds=1", "stop.iterations=3", "batch_size=1"]),
        ("hybrid_simulator", ["seeds=1", "task={kind: digits-mlp}", "compute.mean_s=4.0"]),
        ("hpsgd-real", ["repeats=1", "experiment.stop={iterations: 2}"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_experiment_runs_and_every_claim_is_judged(name, overrides, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "claims.json"
    assert main([name, *overrides, "--json", str(path)]) in (0, 1)
    rows = json.loads(path.read_text("utf-8"))
    assert {row["paper"] for row in rows} == {name}


def test_all_stands_for_every_experiment_and_quick_reduces_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = {}
    for name in EXPERIMENTS:
        judge = judge_of(name)

        def run(data, out, name=name):
            ran[name] = data
            return []

        monkeypatch.setattr(judge, "run", run, raising=False)
    assert main(["all", "--quick", "seed=7"]) == 0
    assert set(ran) == set(EXPERIMENTS)
    assert all(data["seed"] == 7 for data in ran.values())
    assert ran["fluentps-fig9"]["stop"] == {"iterations": 60}
    assert ran["bdsgd-clusters"]["clusters"] == ["ii-0.24"]
