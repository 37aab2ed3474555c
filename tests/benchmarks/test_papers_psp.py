"""PSP-SGD's experiments: the closed form of late replies, and reduced runs of each."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.papers.claims import Claim
from benchmarks.papers.curves import Curve, read_curve
from benchmarks.papers.experiments import EXPERIMENTS, judge_of
from benchmarks.papers.psp import fig2, fig3, fig4, table1
from benchmarks.papers.psp.settings import (
    SETTINGS,
    LateReplies,
    final_error,
    runs_of,
    seconds_to_error,
)

from outpace.experiment.comparison import compare, variants_from
from outpace.experiment.running import simulate
from outpace.support.yaml_files import merged, read_yaml

NODES = 8  # for 32
QUORUMS = {28: 7, 20: 5}
PERCENTS = {90: 85, 75: 75}  # 7 and 6 of 8
LAW = {"message": "reply", "probability": 0.02, "seconds": 4.0}  # as many late in an iteration
SMALL = {
    "task": {"kind": "digits-mlp"},
    "workers": NODES,
    "servers": NODES,
    "network": {"bandwidth_bytes_per_s": 25_000},  # 0.7 s for 4,810 parameters
    "batch_size": 36,  # an epoch is five iterations
    "optimizer": {"lr": 0.005, "schedule": {"at_epochs": [4, 8]}},
    "evaluate": {"every_updates": 5, "samples": None},
    "stop": {"iterations": 60},
}


def reduced(name: str) -> dict[str, Any]:
    """The experiment on 8 workers and 8 servers."""
    data = merged(read_yaml(EXPERIMENTS[name]), SMALL)
    first = [variant for variant in data["variants"] if "seed" not in variant]
    data["variants"] = [_reduced(variant) for variant in first]
    return _reduced(data)


def _reduced(data: dict[str, Any]) -> dict[str, Any]:
    data = dict(data)
    if "quorum" in data.get("sync", {}):
        data["sync"] = data["sync"] | {"quorum": QUORUMS[data["sync"]["quorum"]]}
    if "pull" in data:
        percent = PERCENTS[data["pull"]["quorum_percent"]]
        data["pull"] = data["pull"] | {"quorum_percent": percent}
    network = dict(data.get("network", {}))
    if network.get("delays"):
        network["delays"] = [LAW]
    if "nodes" in network:
        network["nodes"] = {"server-[67]": {"latency_s": 0.5}}
    if network:
        data["network"] = network
    return data


def judged(name: str, out: Path) -> tuple[dict[str, Curve], list[Claim]]:
    variants = variants_from(reduced(name), name, EXPERIMENTS[name].parent)
    compare(variants, out)
    curves = {variant.name: read_curve(out / variant.name) for variant in variants}
    return curves, judge_of(name).claims(curves, {v.name: v.experiment for v in variants})


def curve(name: str, seconds: float, error: float) -> Curve:
    """One that falls from all wrong to this error in a straight line, over ten evaluations."""
    steps = [step / 10 for step in range(11)]
    accuracy = [step * (1 - error) for step in steps]
    times = [step * seconds for step in steps]
    return Curve(name, 32, times, times, [1.0] * 11, None, accuracy)


# -- the closed form -------------------------------------------------------------------------------


def test_if_nobody_may_be_late_the_servers_wait_whenever_somebody_is():
    law = LateReplies(32, 32, 0.0016, 4.0)
    assert law.of_all == pytest.approx(1 - (1 - 0.0016) ** 992)
    assert law.of_quorum(32) == pytest.approx(law.of_all)


def test_with_one_spare_of_two_workers_the_servers_wait_once_both_have_become_late():
    law = LateReplies(2, 2, 0.3, 4.0)
    both, one = 0.3**2, 2 * 0.3 * 0.7
    left = 1 / 0.3  # until the other is late, too
    assert 1 / law.of_quorum(1) == pytest.approx((1 + one * left) / (both + one))


@pytest.mark.parametrize("quorum", [8, 7, 6])
def test_constant_computations_take_as_long_as_the_law_of_late_replies_says(quorum):
    iterations, law = 400, LateReplies(8, 8, 0.01, 4.0)
    result = simulate(
        {
            "task": {"kind": "timing", "parameters": 8},
            "workers": law.workers,
            "servers": law.servers,
            "colocate": True,
            "compute": {"kind": "constant", "mean_s": 7.5},
            "network": {"delays": [{"message": "reply", "probability": 0.01, "seconds": 4.0}]},
            "sync": {"kind": "partial-push", "quorum": quorum},
            "stop": {"iterations": iterations},
        }
    )
    share = (result.metrics["time_s"].to_pylist()[-1] / iterations - 7.5) / law.seconds
    expected = law.of_quorum(quorum)
    # Late once more while late is not in the law: some wait twice as long, some catch up so.
    error = math.sqrt(expected * (1 - expected) / iterations)
    assert share == pytest.approx(expected, abs=4 * error + 0.02)


# -- the judges ------------------------------------------------------------------------------------


def table(seconds: dict[str, float], errors: dict[str, float]) -> list[bool | None]:
    variants = variants_from(
        read_yaml(EXPERIMENTS["psp-table1"]), "psp-table1", EXPERIMENTS["psp-table1"].parent
    )
    experiments = {variant.name: variant.experiment for variant in variants}
    curves = {
        name: curve(name, seconds[setting.name], errors[setting.name])
        for setting in SETTINGS
        for name in [f"{setting.name} seed 0"]
    }
    return [claim.agrees for claim in table1.claims(curves, experiments)]


def test_the_judge_of_table_1_agrees_with_the_published_table_and_with_no_other():
    seconds = {setting.name: 176 * 7.4 * setting.seconds / 139.95 for setting in SETTINGS}
    errors = {setting.name: setting.error for setting in SETTINGS}
    names = [setting.name for setting in SETTINGS]
    assert all(table(seconds, errors)[:-1])
    alike = dict.fromkeys(names, 0.15)
    assert table(seconds, alike)[-2] is False  # 20/75 is to be worse
    assert not any(table(dict.fromkeys(names, 1000.0), errors)[:4])
    slow = seconds | {"push 28 pull 90": 2 * seconds["sync"]}
    assert table(slow, errors)[0] is False


def test_the_runs_of_a_setting_are_those_of_its_name_and_differ_in_the_seed():
    names = [f"{setting.name} seed {seed}" for setting in SETTINGS for seed in (0, 1)]
    curves = {name: curve(name, 1.0, 0.1) for name in names}
    for setting in SETTINGS:
        found = [run.name for run in runs_of(setting, curves)]
        assert found == [f"{setting.name} seed 0", f"{setting.name} seed 1"]


def test_the_time_to_an_error_is_read_off_the_accuracy():
    falling = curve("a", 100.0, 0.0)
    assert seconds_to_error(falling, 0.25) == pytest.approx(75.0)
    assert final_error(falling) == pytest.approx(0.0)
    failed = replace(falling, error="exploded")
    assert (seconds_to_error(failed, 0.25), final_error(failed)) == (math.inf, 1.0)


def test_the_judge_of_figure_3_refuses_a_setting_that_trains_worse():
    good = {setting.name: curve(setting.name, 100.0, 0.15) for setting in SETTINGS}
    assert all(claim.agrees for claim in fig3.claims(good, {}))
    bad = good | {"push 28": curve("push 28", 100.0, 0.25)}
    assert [claim.agrees for claim in fig3.claims(bad, {})] == [False, True, True, True]


def test_the_judge_of_figure_4_refuses_a_setting_that_is_no_faster():
    names = [*(setting.name for setting in SETTINGS), "push 28 pull 90 without delays"]
    curves = {name: curve(name, 70.0, 0.15) for name in names}
    curves |= {name: curve(name, 100.0, 0.15) for name in ("sync", "push 28")}
    curves["sync without delays"] = curve("sync without delays", 75.0, 0.15)
    agree = [claim.agrees for claim in fig4.claims(curves, {})]
    assert agree == [False, True, None, None, True]


# -- the experiments, reduced ----------------------------------------------------------------------


@pytest.mark.slow
def test_partial_push_and_pull_save_the_time_that_late_replies_cost(tmp_path):
    curves, claims = judged("psp-table1", tmp_path / "runs")
    means = [
        sum(run.seconds[-1] for run in runs) / len(runs)
        for runs in (runs_of(setting, curves) for setting in SETTINGS)
    ]
    sync, push, pull, least = means
    assert push < 0.95 * sync
    assert pull < 0.95 * push
    assert least < 1.01 * pull
    assert claims[0].agrees
    errors = [max(map(final_error, runs_of(setting, curves))) for setting in SETTINGS[:3]]
    assert max(errors) < 0.15
    assert max(errors) - min(errors) < 0.05
    assert claims[-1].agrees, claims[-1].measured  # late blocks dropped, as printed


@pytest.mark.slow
def test_as_many_pulls_are_late_as_the_law_says(tmp_path):
    curves, claims = judged("psp-fig2", tmp_path / "runs")
    assert all(claim.agrees is not False for claim in claims), claims
    delays = fig2.pull_delays(curves["4 s delay"].folder)
    assert len(delays.way) == NODES * (NODES - 1) * SMALL["stop"]["iterations"]
    assert (delays.way <= delays.whole).all()
    (picture,) = fig2.draw(curves, tmp_path)
    assert "way of the response" in picture.read_text()


def pulls(long: float, *, short_s: float = 1.4, long_s: float = 4.4) -> fig2.PullDelays:
    """10,000 pulls, of which this share takes `long_s`; 0.16 % of the replies are late."""
    whole = np.where(np.arange(10_000) < 10_000 * long, long_s, short_s)
    way = np.where(np.arange(10_000) < 16, 4.2, 0.4)
    return fig2.PullDelays(whole, way)


@pytest.mark.parametrize(
    ("normal", "delayed", "agrees"),
    [
        (pulls(0.0), pulls(0.735), [True, True, True]),
        # If only pulls whose own reply is late took long, as without a barrier:
        (pulls(0.0), pulls(0.0016), [True, False, False]),
        (pulls(0.0), pulls(0.55), [True, False, True]),
        (pulls(0.0), pulls(0.95), [True, False, True]),
        (pulls(0.0), pulls(0.735, long_s=9.0), [True, True, False]),  # delays that add up
        (pulls(0.1, long_s=4.5), pulls(0.735, long_s=4.6), [False, True, True]),
    ],
)
def test_the_delay_of_pulls_is_judged_by_its_closed_form(normal, delayed, agrees):
    # 31 replies from other machines: 1 - 0.9984^31 = 4.84 % of the workers are late, none of 32 in
    # 20.4 % of the iterations, so 95.2 - 20.4 = 74.7 % of the pulls wait, in 59 of 60 iterations.
    law = LateReplies(32, 32, 0.0016, 4.0)
    assert law.of_pulls == pytest.approx(0.747, abs=0.001)
    claims = fig2.judged(normal, delayed, law, iterations=60)
    assert [claim.agrees for claim in claims if claim.agrees is not None] == agrees


@pytest.mark.slow
def test_without_delays_partial_push_and_pull_lose_nothing(tmp_path):
    _, claims = judged("psp-fig3", tmp_path / "runs")
    assert all(claim.agrees for claim in claims[:2])
    assert claims[-1].agrees


@pytest.mark.slow
def test_with_delays_partial_push_and_pull_get_to_an_error_earlier(tmp_path):
    curves, claims = judged("psp-fig4", tmp_path / "runs")
    assert claims[1].agrees, claims[1].measured  # 28/90 earlier than 32/100
    assert claims[-1].agrees, claims[-1].measured  # as if nothing were delayed
    sync, push = (curves[name].seconds[-1] for name in ("sync", "push 28"))
    assert push < 0.95 * sync
    assert sync > 1.15 * curves["sync without delays"].seconds[-1]
