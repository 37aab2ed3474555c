"""The clusters of BDSGD's experiments: the laws are those of the run times that are drawn."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from benchmarks.papers.bdsgd.cut_offs.clusters import SPEEDS, drifting, four_nodes, switching_nodes
from benchmarks.papers.bdsgd.cut_offs.goals import goals
from benchmarks.papers.bdsgd.cut_offs.measuring import Fits, Settings, clusters, measure
from benchmarks.papers.bdsgd.cut_offs.picture import draw
from benchmarks.papers.bdsgd.cut_offs.results import Row, blocks
from benchmarks.papers.bdsgd.cut_offs.truth import Knowing, Known
from benchmarks.papers.experiments import EXPERIMENTS, judge_of

from outpace.predict.rules.settings import ModelName
from outpace.support.yaml_files import read_yaml

MAKE = {
    "i": lambda seed: four_nodes(60, seed, events=[]),
    "ii": lambda seed: drifting(60, seed, SPEEDS["0.24"]),
    "iii": lambda seed: switching_nodes(60, seed),
}


@pytest.mark.parametrize("name", MAKE)
def test_a_cluster_is_the_same_in_every_run_and_a_seed_is_a_run(name):
    one, same, other = (MAKE[name](seed) for seed in (1, 1, 2))
    assert (one.seconds == same.seconds).all()
    assert (one.seconds != other.seconds).any()
    assert (one.node == other.node).all()


@pytest.mark.parametrize(("speed", "deviation"), [("5.34", 0.13), ("2.83", 0.077), ("0.24", 0.018)])
def test_cluster_ii_is_as_fast_as_the_papers(speed, deviation):
    seconds = np.concatenate([drifting(100, seed, SPEEDS[speed]).seconds for seed in range(3)])
    assert np.median(seconds) == pytest.approx(float(speed), rel=0.02)
    assert seconds.std() < 3 * deviation


@pytest.mark.parametrize("name", MAKE)
def test_draws_of_the_law_are_calibrated(name):
    """The rank of what came among draws is uniform, of each order statistic in the middle."""
    run = MAKE[name](3)
    filtered = Knowing(run.law, seed=0)
    ranks = []
    for row in run.seconds:
        draws = filtered.predict().sample(49)
        filtered.observe(row, np.zeros(len(row), dtype=bool))
        ranks.append((draws < row).mean(axis=0))
    ranks = np.concatenate(ranks)
    assert ranks.mean() == pytest.approx(0.5, abs=0.02)
    assert (ranks < 0.1).mean() == pytest.approx(0.1, abs=0.03)
    assert (ranks > 0.9).mean() == pytest.approx(0.1, abs=0.03)


@pytest.mark.parametrize("name", MAKE)
def test_conditioned_on_who_came_the_others_are_later_and_follow_their_node(name):
    run = MAKE[name](4)
    random = np.random.default_rng(0)
    law = run.law(30)
    nobody = np.full(len(run.node), np.nan)
    row = Known(law, random, nobody).sample(1)[0]
    elapsed = float(np.quantile(row, 0.6))
    arrived = np.where(row <= elapsed, row, np.nan)
    draws = Known(law, random, nobody).given(arrived, elapsed).sample(20)
    came = ~np.isnan(arrived)
    assert (draws[:, came] == arrived[came]).all()
    assert (draws[:, ~came] > elapsed).all()


def test_conditioning_is_what_rejection_says():
    """Condition cluster iii on the arrivals of one node at a time between normal and slow."""
    run = switching_nodes(5, 0)
    law = run.law(3)
    random = np.random.default_rng(1)
    nobody = np.full(len(run.node), np.nan)
    draws = Known(law, random, nobody).sample(20_000)
    late = (draws[:, run.node == 0] > 0.33).sum(axis=1) >= 5  # node 0 is slow
    node = draws[late][:, run.node == 0]
    few = node[(node > 0.33).all(axis=1)]
    arrived = nobody.copy()
    arrived[run.node != 0] = np.where(
        draws[0, run.node != 0] <= 0.33, draws[0, run.node != 0], np.nan
    )
    given = Known(law, random, nobody).given(arrived, 0.33).sample(4000)[:, run.node == 0]
    assert len(few) > 200
    error = few.mean(axis=1).std() / np.sqrt(len(few))
    assert given.mean() == pytest.approx(few.mean(), abs=4 * error + 0.01)


def test_a_rule_is_measured_without_its_warm_up_on_every_run():
    settings = Settings(seed=0, repeats=2, warmup=20, samples=30, objective="iteration")
    cluster = clusters("nowhere")["i"]
    runs = measure(cluster, "last-5", Fits(cluster, 0), settings, censored=True)
    assert [len(run.count) for run in runs] == [180, 180]
    assert all(97 < run.of_oracle < 100 for run in runs)


def row(name: str, repeats: int) -> Row:
    settings = Settings(seed=0, repeats=repeats, warmup=20, samples=30, objective="iteration")
    cluster = clusters("nowhere")["i"]
    runs = measure(cluster, name, Fits(cluster, 0), settings, censored=True)
    return Row.of(runs, np.nan)


def test_blocks_of_a_run_have_its_per_cent_of_the_oracle_as_their_mean():
    settings = Settings(seed=0, repeats=1, warmup=21, samples=30, objective="iteration")
    cluster = clusters("nowhere")["i"]
    (run,) = measure(cluster, "last-20", Fits(cluster, 0), settings, censored=True)
    parts = blocks(run, 7)  # of 179 iterations
    assert len(parts) == 7
    assert np.mean(parts) == pytest.approx(run.of_oracle, rel=1e-12)
    assert np.std(parts) > 0
    assert Row.of([run], np.nan).of_oracle == pytest.approx(run.of_oracle, rel=1e-12)


def test_rows_are_compared_part_by_part():
    """A shift that is common to the runs does not make their difference uncertain."""
    numbers = {"ready ms": 1.0, "in all ms": 1.0, "fit s": np.nan}
    one, other = (
        Row([70 + shift, 80 + shift, 90 + shift], numbers, {}, {}, {}) for shift in (0.5, 0.0)
    )
    assert one.error > 5
    assert one.more_than(other) == pytest.approx((0.5, 0.0), abs=1e-12)


def test_goals_are_judged_by_their_margins():
    rows = {"true count": 90.0, "pooled count": 89.1, "pooled replan": 95.0, "last-5": 95.4}
    numbers = {"ready ms": 3.1, "in all ms": 29.0, "fit s": np.nan}
    table = {rule: Row([value - 1, value + 1], numbers, {}, {}, {}) for rule, value in rows.items()}
    found = {claim.published: claim.agrees for claim in goals("t", "iii", 160, table)}
    assert found == {
        "goal: pooled count at most 1 below true count": True,
        "goal: pooled replan at most 0.3 below last-5": False,
        "goal: pooled replan above every rolling rule, beyond the standard error": False,
        "goal: ready within 3 ms, 160 workers": False,
        "goal: all decisions of an iteration within 30 ms, 160 workers": True,
    }


def test_cut_offs_are_counted_and_drawn(tmp_path):
    pytest.importorskip("plotly")
    last = row("last-5", 2)
    assert sum(last.cut_offs.values()) == sum(last.oracles.values()) == 360
    off = sum(abs(more) * often for more, often in last.apart.items())
    assert last.numbers["apart"] == pytest.approx(off / 360)
    picture = draw({"i, censored": {"last-5": last}, "i, full": {}}, tmp_path)
    assert picture.read_text("utf-8").count("i, censored") >= 1


def test_the_experiment_names_rules_and_clusters_that_there_are():
    data = read_yaml(EXPERIMENTS["bdsgd-clusters"])
    assert set(data["clusters"]) <= set(clusters("nowhere"))
    assert {rule.split()[0] for rule in data["rules"]} <= {*get_args(ModelName), "true", "rolling"}
    assert callable(judge_of("bdsgd-clusters").run)
