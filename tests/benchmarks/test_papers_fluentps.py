"""FluentPS's experiments, reduced: few iterations, the main ordering of each with a margin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from benchmarks.papers.curves import Curve, read_curve
from benchmarks.papers.experiments import EXPERIMENTS, judge_of
from benchmarks.papers.pace import Pace, accuracy, pace

from outpace.experiment.comparison import variants_from
from outpace.experiment.running import simulate
from outpace.support.yaml_files import read_yaml, with_overrides

TIMES_ONLY = ("task={kind: timing, parameters: 1000}",)

pytestmark = pytest.mark.slow


@pytest.fixture
def runs(tmp_path):
    """Run some variants of an experiment, with overrides; their curves by name."""

    def run(name: str, variants: tuple[str, ...], *overrides: str) -> Mapping[str, Curve]:
        by_name = {variant.name: variant for variant in _variants(name, overrides)}
        for variant in variants:
            simulate(by_name[variant].experiment, tmp_path / variant)
        return {variant: read_curve(tmp_path / variant) for variant in variants}

    return run


@cache
def _variants(name: str, overrides: tuple[str, ...]) -> list[Any]:
    data = with_overrides(read_yaml(EXPERIMENTS[name]), list(overrides))
    return variants_from(data, name, EXPERIMENTS[name].parent)


def _paces(curves: Mapping[str, Curve]) -> list[Pace]:
    return [pace([curve]) for curve in curves.values()]


def test_table_4_soft_ssp_delays_most_and_takes_longest(runs):
    names = ("64x1 asp", "64x1 lazy 1", "64x1 soft 0.5", "64x1 soft 1")
    asp, lazy, half, soft = _paces(
        runs("fluentps-table4", names, *TIMES_ONLY, "stop.iterations=100")
    )
    assert soft.delayed.mean > 3 * lazy.delayed.mean
    assert soft.delayed.mean > 1.4 * half.delayed.mean
    assert asp.faster_than(soft).mean > 1.25
    assert lazy.faster_than(soft).mean > 1.05


def test_figure_6_overlap_communicates_less_than_a_global_barrier_and_eps_less_than_that(runs):
    names = ("PS-Lite 16", "FluentPS 16", "EPS 16")
    paces = _paces(runs("fluentps-fig6", names, "stop.iterations=5"))
    lite, overlap, eps = (each.communicate_s.mean for each in paces)
    assert lite > 1.1 * overlap > 1.2 * eps


def test_figure_7_ssptable_collapses_with_many_workers_and_ssp_does_not(runs):
    names = ("SSPtable 2", "SSPtable 16", "FluentPS 2", "FluentPS 16", "SSPtable averaged 16")
    curves = runs("fluentps-fig7", names, "stop.iterations=60")
    few, many, ours, ours_many, averaged = map(accuracy, curves.values())
    assert few > 0.85
    assert many < 0.4
    assert min(ours, ours_many, averaged) > 0.85


@pytest.mark.parametrize("name", ["fluentps-alpha", "fluentps-one-slow"])
def test_every_claim_of_an_experiment_is_judged_from_its_runs(name, tmp_path):
    curves, experiments = {}, {}
    for variant in _variants(name, ()):
        short = replace(variant.experiment.stop, iterations=8)
        experiments[variant.name] = replace(variant.experiment, workers=8, stop=short)
        simulate(experiments[variant.name], tmp_path / variant.name)
        curves[variant.name] = [read_curve(tmp_path / variant.name)]
    claims = judge_of(name).claims(curves, experiments)
    judged = [claim for claim in claims if claim.margin and claim.agrees is not None]
    assert len(judged) >= 3
    assert {claim.agrees for claim in judged} <= {True, False}
