"""The papers' experiments: they run from the command to the verdict, and claims are judged."""

from __future__ import annotations

import json
import math
import zlib
from dataclasses import fields
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from benchmarks.papers.__main__ import main
from benchmarks.papers.bdsgd import fig5
from benchmarks.papers.bdsgd import real as bdsgd_real
from benchmarks.papers.bdsgd import training as bdsgd_training
from benchmarks.papers.bdsgd.cut_offs import goals
from benchmarks.papers.bdsgd.cut_offs.results import Row
from benchmarks.papers.bdsgd.trainings import ALL, Measured
from benchmarks.papers.claims import UNDECIDED
from benchmarks.papers.curves import Curve
from benchmarks.papers.experiments import EXPERIMENTS, judge_of, variants_of
from benchmarks.papers.hpsgd import real as hpsgd_real
from benchmarks.papers.over_seeds import Spread, all_of
from benchmarks.papers.psp.settings import LateReplies

from outpace.support.yaml_files import read_yaml


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


class MadeUp(Curve):
    """The curve and the records of a run that was not made; its name decides the numbers."""

    @classmethod
    def of(cls, variant, seed):
        draw = random(variant.name, seed).uniform
        workers, evaluations = variant.experiment.workers, 24
        loss = 2.3 * np.exp(-np.arange(evaluations) / draw(2, 8)) + draw(0.1, 0.9)
        seconds, gradients = np.cumsum(draw(0.5, 5, (2, evaluations)), axis=1).tolist()
        summary = {
            "seconds": {"compute": draw(10, 40), "communicate": draw(1, 20), "wait": draw(0, 20)},
            "iterations": [100] * workers,
            "delayed_pulls": draw(1, 5000),
            "gradients_applied": 100 * workers,
            "bytes_sent": draw(1e6, 2e6),
            "mean_window": draw(1, 4),
        }
        accuracy = (1 - loss / 3.3).tolist()
        return cls(
            variant.name, workers, seconds, gradients, loss.tolist(), None, accuracy, summary
        )

    def trace(self, event, columns):
        worker, iteration = (each.ravel() for each in np.indices((self.workers, 100)))
        draw = random(self.name, event).integers
        step_ns, many = draw(10**7, 10**8), len(worker)
        start_ns = iteration * step_ns
        rows = {
            "worker": worker,
            "iteration": iteration,
            "start_ns": start_ns,
            "computed_ns": start_ns + step_ns // 2,
            "held_ns": draw(step_ns // 2, size=many),
            "end_ns": start_ns + step_ns,
            "lead": draw(6, size=many),
            "bound": np.full(many, 3),
            "reason": np.where(draw(2, size=many), "spared", "held"),
        }
        return pa.table({name: rows[name] for name in columns})

    def messages(self, kind):
        requested_ns = np.arange(100)
        ends = {"sender": ["worker-1"] * 100, "receiver": ["server-0"] * 100}
        if kind == "reply":
            ends = dict(zip(ends, reversed(ends.values()), strict=True))
        delivered_ns = requested_ns + random(self.name, kind).integers(10**9, size=100)
        return pa.table({**ends, "requested_ns": requested_ns, "delivered_ns": delivered_ns})


def random(*words):
    return np.random.default_rng(zlib.crc32(str(words).encode()))


@pytest.mark.parametrize(
    "name", [name for name in EXPERIMENTS if not hasattr(judge_of(name), "run")]
)
def test_a_judge_judges_all_variants_of_its_experiment_and_can_disagree(name):
    variants = variants_of(name, read_yaml(EXPERIMENTS[name]))
    assert len({variant.name for variant in variants}) == len(variants) > 1
    curves = {each.name: [MadeUp.of(each, seed) for seed in (0, 1)] for each in variants}
    found = judge_of(name).claims(curves, {each.name: each.experiment for each in variants})
    assert_judged(found)


def assert_judged(found):
    assert all(claim.published and claim.measured for claim in found)
    assert any(claim.verdict in ("differs", UNDECIDED) for claim in found)


def rows(kind, names):
    """Return made-up results by name; `kind` is a dataclass of spreads."""
    return {name: kind(*(spread(name, each.name) for each in fields(kind))) for name in names}


def spread(*words):
    return Spread(tuple(random(*words).uniform(1, 3, 3).tolist()))


def of_rules(*names):
    return {
        name: Row(spread(name), {"apart": spread(name, 1), "saved": spread(name, 2)})
        for name in names
    }


CUT_OFFS = [ALL, "Chen", "Elfving", "deep Markov", "pooled", "asynchronous"]
RULES = of_rules(
    "all",
    "fixed",
    "elfving",
    "last-5",
    "rolling hedge",
    "true count",
    "pooled hedge",
    "deep-markov count",
    "pooled count",
    "pooled replan",
)


JUDGES = {  # of experiments that measure by themselves
    "bdsgd-clusters": lambda: goals.papers("ii-0.24", RULES),
    "bdsgd-fig5": lambda: fig5.claims("5.34", rows(fig5.Found, CUT_OFFS), spread("oracle")),
    "bdsgd-real": lambda: bdsgd_real.claims(rows(Measured, CUT_OFFS), [np.array([0.001, 9.0])]),
    "bdsgd-rules": lambda: [
        *goals.goals("iii", "censored", RULES),
        *goals.filled_in("i", RULES, of_rules("deep-markov count")),
    ],
    "bdsgd-training": lambda: bdsgd_training.claims("cluster i", rows(Measured, CUT_OFFS)),
    "hpsgd-real": lambda: hpsgd_real.claims(rows(hpsgd_real.Found, [*hpsgd_real.IN_STEP, "HPSGD"])),
}


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if hasattr(judge_of(name), "run")])
def test_a_judge_of_an_experiment_that_measures_by_itself_can_disagree(name):
    assert_judged(JUDGES[name]())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("bdsgd-rules", ["seeds=1", "clusters=[i]", "rules=[last-5, rolling hedge]"]),
        ("psp-discussion", ["seeds=1", "stop.iterations=3", "batch_size=1"]),
        ("hpsgd-accuracy", ["seeds=1", "stop.iterations=3"]),
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
    # Each misses the target on one seed.
    assert Spread((math.inf, 1.0)).below(Spread((1.0, math.inf))) is False
    assert all_of([True, UNDECIDED]) == UNDECIDED
    assert all_of([UNDECIDED, False, True]) is False


def test_late_replies_delay_as_their_closed_form_says():
    everybody, one_spare = LateReplies(32, 32, 0.0016, 4.0), LateReplies(2, 2, 0.3, 4.0)
    assert everybody.of_quorum(32) == pytest.approx(1 - (1 - 0.0016) ** 992)
    both, one = 0.3**2, 2 * 0.3 * 0.7
    left = 1 / 0.3  # until the other one is also late
    assert 1 / one_spare.of_quorum(1) == pytest.approx((1 + one * left) / (both + one))
