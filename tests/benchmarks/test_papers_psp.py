"""PSP-SGD's experiments: the closed form of late replies, and reduced runs of each."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.papers.claims import Claim, Verdict
from benchmarks.papers.curves import Curve, read_curve
from benchmarks.papers.experiments import EXPERIMENTS, judge_of
from benchmarks.papers.psp import (
    discussion,
    fig2,
    fig3,
    fig4,
    late_blocks,
    ssp_partial_pull,
    table1,
)
from benchmarks.papers.psp.settings import SETTINGS, LateReplies, end, final_error, seconds_to_error

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
    """The experiment on 8 workers and 8 servers, to be run on one seed."""
    data = merged(read_yaml(EXPERIMENTS[name]), SMALL)
    data["variants"] = [_reduced(variant) for variant in data["variants"]]
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


def judged(name: str, out: Path) -> tuple[dict[str, list[Curve]], list[Claim]]:
    variants = variants_from(reduced(name), name, EXPERIMENTS[name].parent)
    compare(variants, out)
    curves = {variant.name: [read_curve(out / variant.name)] for variant in variants}
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


SECONDS = {setting.name: 176 * 7.4 * setting.seconds / 139.95 for setting in SETTINGS}
ERRORS = {setting.name: setting.error for setting in SETTINGS}


def runs_of(
    seconds: dict[str, float], errors: dict[str, float], spread: float = 0.001
) -> dict[str, list[Curve]]:
    """Three runs of each; `spread` apart, in shares of the time and in errors, not all alike."""
    deviations = {name: (0.0, (-1) ** place, 0.5) for place, name in enumerate(seconds)}
    return {
        name: [
            curve(name, seconds[name] * (1 + spread * by), errors[name] + spread * by)
            for by in deviations[name]
        ]
        for name in seconds
    }


def table(
    seconds: dict[str, float], errors: dict[str, float], spread: float = 0.001
) -> list[Verdict | None]:
    variants = variants_from(
        read_yaml(EXPERIMENTS["psp-table1"]), "psp-table1", EXPERIMENTS["psp-table1"].parent
    )
    experiments = {variant.name: variant.experiment for variant in variants}
    return [claim.agrees for claim in table1.claims(runs_of(seconds, errors, spread), experiments)]


def test_the_judge_of_table_1_agrees_with_the_published_table_and_with_no_other():
    assert table(SECONDS, ERRORS)[:-1] == [True] * 6
    assert table(SECONDS, dict.fromkeys(ERRORS, 0.15))[-2] is False  # 20/75 is to be worse
    assert table(SECONDS, ERRORS | {"push 28": 0.2})[-3] is False  # 28/100 is to be near
    assert not any(each is True for each in table(dict.fromkeys(SECONDS, 1000.0), ERRORS)[:4])
    slow = SECONDS | {"push 28 pull 90": 2 * SECONDS["sync"]}
    assert table(slow, ERRORS)[0] is False
    assert table(slow, ERRORS)[2] is False


def test_the_explanation_of_table_1_is_bound_by_the_law_of_late_replies():
    # T = 7.4 s, and 32/100 waits 4 s in 1 - 0.9984^992 = 79.6 %, 28/100 in at most 25.9 %.
    times = {"sync": 7.4 + 3.0, "push 28": 7.4 + 0.7, "push 28 pull 90": 7.4}
    seconds = {name: 176 * each for name, each in times.items()}
    assert table(SECONDS | seconds, ERRORS)[-1] is True
    for wrong in ({"sync": 176 * 10.7}, {"sync": 176 * 9.5}, {"push 28": 176 * 8.6}):
        assert table(SECONDS | seconds | wrong, ERRORS)[-1] is False


@pytest.mark.parametrize(
    ("errors", "agrees"), [((0.16, 0.3, 0.18), True), ((0.16, 0.3, 0.29), False)]
)
def test_late_blocks_explain_the_error_of_20_75_only_if_it_is_theirs(errors, agrees):
    runs = dict(zip(late_blocks.NAMES, errors, strict=True))
    claims = late_blocks.claims(runs_of(dict.fromkeys(runs, 1.0), runs), {})
    assert [claim.agrees for claim in claims] == [agrees]


def test_the_judge_of_ssp_with_partial_pull_refuses_other_orders_of_the_times():
    name = "psp-ssp-partial-pull"
    variants = variants_from(read_yaml(EXPERIMENTS[name]), name, EXPERIMENTS[name].parent)
    experiments = {variant.name: variant.experiment for variant in variants}
    seconds = dict(zip(ssp_partial_pull.EVERY, (600.0, 460.0, 440.0, 430.0, 435.0), strict=True))
    errors = dict.fromkeys(seconds, 0.2)

    def agree(**changes: float) -> list[Verdict | None]:
        words = {name.replace("_", " "): value for name, value in changes.items()}
        runs = runs_of(seconds | words, errors)
        return [claim.agrees for claim in ssp_partial_pull.claims(runs, experiments)][:2]

    assert agree() == [True, True]
    assert agree(SSP=610.0) == [False, True]
    assert agree(SSP_pull_90=470.0) == [False, True]
    assert agree(BSP_pull_90=610.0) == [True, False]


def of_the_discussion(**changed: tuple[float, int, float]) -> list[Verdict | None]:
    """Verdicts on time-outs and not sending. changed: seconds, gradients, share of the bytes."""
    runs = {
        "sync": (260.0, 1600, 1.0),
        "tau 0": (118.0, 1200, 1.0),
        "tau 0.2": (135.0, 1480, 1.0),
        "tau 0.5": (154.0, 1570, 1.0),
        "tau 3": (255.0, 1595, 1.0),
        "fewer pushes": (260.0, 1200, 0.875),
        "fewer pulls": (260.0, 1600, 0.875),
    } | {name.replace("_", " ").replace("tau 05", "tau 0.5"): of for name, of in changed.items()}
    curves = {
        name: [
            replace(
                curve(name, seconds, 0.1),
                summary={"gradients_applied": gradients, "bytes_sent": 1e6 * share},
            )
        ]
        for name, (seconds, gradients, share) in runs.items()
    }
    return [claim.agrees for claim in discussion.claims(curves, {})]


def test_the_judge_of_time_outs_and_of_not_sending_refuses_what_differs():
    assert of_the_discussion() == [True] * 4
    assert of_the_discussion(tau_05=(130.0, 1570, 1.0)) == [False, True, True, True]
    assert of_the_discussion(tau_3=(255.0, 1560, 1.0)) == [True, False, True, True]
    assert of_the_discussion(fewer_pushes=(260.0, 1200, 1.0)) == [True, True, False, True]
    assert of_the_discussion(fewer_pulls=(260.0, 1600, 0.75)) == [True, True, True, False]


def test_the_time_to_an_error_is_read_off_the_accuracy():
    falling = curve("a", 100.0, 0.0)
    assert seconds_to_error(falling, 0.25) == pytest.approx(75.0)
    assert final_error(falling) == pytest.approx(0.0)
    assert end(falling) == 100.0
    assert seconds_to_error(replace(falling, error="exploded"), 0.25) == math.inf


def test_the_judge_of_figure_3_refuses_a_setting_that_trains_worse_or_is_slower():
    names = [setting.name for setting in SETTINGS]
    seconds = dict(zip(names, (100.0, 96.0, 94.0, 92.0), strict=True))
    errors = dict.fromkeys(names, 0.15)

    def agree(seconds: dict[str, float], errors: dict[str, float]) -> list[Verdict | None]:
        return [claim.agrees for claim in fig3.claims(runs_of(seconds, errors), {})]

    assert agree(seconds, errors) == [True] * 4
    assert agree(seconds, errors | {"push 28": 0.25}) == [False, True, True, True]
    assert agree(seconds | {"push 28": 110.0}, errors) == [True, True, True, False]
    assert agree(seconds | {"push 20 pull 75": 80.0}, errors) == [True, True, True, False]


def test_the_gap_of_figure_3_is_that_of_the_means_after_the_first_third():
    # 11 evaluations; from the fourth on the errors differ by 0.1 · step · 1 % at most: 0.01.
    runs, others = [curve("a", 1.0, 0.16)], [curve("b", 1.0, 0.15)]
    assert fig3.later_gap(runs, others).mean == pytest.approx(0.01)
    opposite = [curve("a", 1.0, 0.18), curve("a", 1.0, 0.12)]
    assert fig3.later_gap(opposite, others * 2).mean == pytest.approx(0.0)


def test_the_judge_of_figure_4_refuses_savings_that_are_not_the_published_ones():
    seconds = {
        "sync": 100.0,
        "push 28": 82.0,
        "push 28 pull 90": 71.0,
        "push 20 pull 75": 69.0,
        "sync without delays": 77.0,
        "push 28 pull 90 without delays": 70.5,
    }
    errors = dict.fromkeys(seconds, 0.15)

    def agree(**changes: float) -> list[Verdict | None]:
        words = {name.replace("_", " "): value for name, value in changes.items()}
        return [claim.agrees for claim in fig4.claims(runs_of(seconds | words, errors), {})]

    assert agree() == [True, True, True, True, None, True, True]
    assert agree(push_28=100.0)[0] is False
    assert agree(push_28=70.0)[0] is False  # saves more than 17 + 5 %
    assert agree(push_28=101.0)[2] is False
    assert agree(push_28_pull_90=80.0)[1] is False
    assert agree(push_28_pull_90=120.0)[3] is False
    assert agree(sync_without_delays=90.0)[-2] is False
    assert agree(push_28_pull_90_without_delays=60.0)[-1] is False


# -- the experiments, reduced ----------------------------------------------------------------------


@pytest.mark.slow
def test_partial_push_and_pull_save_the_time_that_late_replies_cost(tmp_path):
    curves, claims = judged("psp-table1", tmp_path / "runs")
    sync, push, pull, least = (end(curves[setting.name][0]) for setting in SETTINGS)
    assert push < 0.95 * sync
    assert pull < 0.95 * push
    assert least < 1.01 * pull
    assert claims[0].agrees
    errors = [final_error(curves[setting.name][0]) for setting in SETTINGS[:3]]
    assert max(errors) < 0.15
    assert max(errors) - min(errors) < 0.05


@pytest.mark.slow
def test_as_many_pulls_are_late_as_the_law_says(tmp_path):
    curves, claims = judged("psp-fig2", tmp_path / "runs")
    assert all(claim.agrees is not False for claim in claims), claims
    delays = fig2.pull_delays(curves["4 s delay"][0].folder)
    assert len(delays.way) == NODES * (NODES - 1) * SMALL["stop"]["iterations"]
    assert (delays.way <= delays.whole).all()


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
        (pulls(0.0), pulls(0.95), [True, False, True]),
        (pulls(0.0), pulls(0.735, long_s=9.0), [True, True, False]),  # delays that add up
    ],
)
def test_the_delay_of_pulls_is_judged_by_its_closed_form(normal, delayed, agrees):
    # 31 replies from other machines: 1 - 0.9984^31 = 4.84 % of the workers are late, none of 32 in
    # 20.4 % of the iterations, so 95.2 - 20.4 = 74.7 % of the pulls wait, in 59 of 60 iterations.
    law = LateReplies(32, 32, 0.0016, 4.0)
    assert law.of_pulls == pytest.approx(0.747, abs=0.001)
    claims = fig2.judged([normal], [delayed], law, iterations=60)
    assert [claim.agrees for claim in claims if claim.agrees is not None] == agrees
