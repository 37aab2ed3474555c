"""The papers' experiments: they run from the command to the verdict, and claims are judged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.papers.__main__ import main
from benchmarks.papers.claims import UNDECIDED
from benchmarks.papers.experiments import EXPERIMENTS, judge_of
from benchmarks.papers.over_seeds import Spread, all_of
from benchmarks.papers.psp.settings import LateReplies

from outpace.experiment.comparison import variants_from
from outpace.support.yaml_files import read_yaml

TIMES_ONLY = "task={kind: timing, parameters: 1000}"


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_experiments_of_a_paper_are_valid_and_have_a_judge(name):
    path, judge = EXPERIMENTS[name], judge_of(name)
    if hasattr(judge, "run"):
        pytest.skip("measures by itself")
    variants = variants_from(read_yaml(path), str(path), path.parent)
    assert len({variant.name for variant in variants}) == len(variants) > 1
    assert callable(judge.claims)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("bdsgd-rules", ["repeats=1", "clusters=[i]", "rules=[last-5, rolling hedge]"]),
        ("fluentps-models", [TIMES_ONLY, "seeds=1", "stop={virtual_time_s: 42.0}"]),
        ("psp-discussion", ["seeds=1", "stop.iterations=3", "batch_size=1"]),
        ("hybrid_simulator", ["seeds=1", "task={kind: digits-mlp}", "compute.mean_s=4.0"]),
        ("hpsgd-scaling", ["workers=[4]", "steps=32", "repeats=1"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_experiment_runs_and_every_claim_is_judged(name, overrides):
    assert main([name, *overrides, "--json", "claims.json"]) in (0, 1)
    rows = json.loads(Path("claims.json").read_text("utf-8"))
    assert {row["paper"] for row in rows} == {name}
    assert {row["verdict"] for row in rows} <= {"agrees", "differs", "undecided", None}


def test_two_spreads_are_compared_by_the_pairs_of_equal_seeds():
    # 1, 2, 6: mean 3, variance (4 + 1 + 9) / 2 = 7, error sqrt(7 / 3) = 1.5275
    a = Spread((1.0, 2.0, 6.0))
    assert f"{a:.2f}" == "3.00 ± 1.53"
    assert a.near(3.4, 0.5)
    assert not a.near(3.6, 0.5)
    assert (Spread((2.0, 2.0, 3.0)) / a).values == (2.0, 1.0, 0.5)
    # The values overlap, the differences 0.9, 1.0, 1.1 do not reach 0: 1.0 ± 4.30 x 0.058.
    b = Spread((1.9, 3.0, 7.1))
    assert a.below(b) is True
    assert b.below(a) is False
    # -0.5, 0.5, 1.0: mean 0.33, error 0.44.
    assert a.below(Spread((0.5, 2.5, 7.0))) == UNDECIDED
    assert all_of([True, UNDECIDED]) == UNDECIDED
    assert all_of([UNDECIDED, False, True]) is False


def test_late_replies_delay_as_their_closed_form_says():
    everybody, one_spare = LateReplies(32, 32, 0.0016, 4.0), LateReplies(2, 2, 0.3, 4.0)
    assert everybody.of_quorum(32) == pytest.approx(1 - (1 - 0.0016) ** 992)
    both, one = 0.3**2, 2 * 0.3 * 0.7
    left = 1 / 0.3  # until the other one is also late
    assert 1 / one_spare.of_quorum(1) == pytest.approx((1 + one * left) / (both + one))
