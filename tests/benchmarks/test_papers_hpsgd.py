"""HPSGD's experiments, reduced: they run, and their judges refuse what differs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from benchmarks.papers.curves import Curve
from benchmarks.papers.experiments import EXPERIMENTS
from benchmarks.papers.hpsgd import accuracy, real, scaling, training
from benchmarks.papers.hpsgd.accuracy import Split
from benchmarks.papers.hpsgd.scaling import HPSGD, LOCAL, PSGD, SSGD, Found, Ring, Row, Steps
from benchmarks.papers.over_seeds import Spread

from outpace.experiment.running import simulate
from outpace.support.yaml_files import read_yaml, with_overrides
from outpace.tasks.models import layer_sizes

RESNET_BYTES = 4 * sum(layer_sizes("resnet-101"))


def data(name, *overrides):
    return with_overrides(read_yaml(EXPERIMENTS[name]), overrides)


def row(workers=4, k=1.0, waiting=0.0, **changed: float) -> Row:
    """As the cost model has it. waiting: of HPSGD; changed: efficiencies."""
    model, never = Steps(k, 8), Spread((0.0,))
    efficiency = {name: 1 / model.of(name) for name in (SSGD, LOCAL, HPSGD, PSGD)} | changed
    found = {name: Found(Spread((each,)), never) for name, each in efficiency.items()}
    window = Spread((float(math.ceil(k)),))
    found[HPSGD] = replace(found[HPSGD], mean_window=window, waiting=Spread((waiting,)))
    return Row(workers, k, 8, found)


def test_the_network_costs_what_explains_both_ratios_over_ssgd():
    scaling = data("hpsgd-scaling")
    ring = Ring(**scaling["network"])
    k = [ring.seconds(workers, RESNET_BYTES) / scaling["step_s"] for workers in (4, 16)]
    assert k == pytest.approx([4 / 3, 2.5], rel=2e-3)
    with_ratios = [Steps(of, 8).of(SSGD) for of in k]
    assert with_ratios == pytest.approx([2.33, 3.5], rel=2e-3)


def test_the_cost_model_is_that_of_section_3_2():
    model = Steps(2.0, 8)
    assert [model.of(name) for name in (SSGD, LOCAL, HPSGD, PSGD)] == [3.0, 1.25, 1.0, 1.0]
    assert (model.in_a_round, model.synchronizations) == (10.0, 5.0)


def test_scaling_runs_and_is_judged(tmp_path):
    few = data(
        "hpsgd-scaling", "workers=[4, 16]", "models=[resnet-101]", "steps=32", "repeats=1", "seed=1"
    )
    claims = scaling.run(few, tmp_path)
    spread = [claim for claim in claims if claim.where.startswith("start together")]
    assert [claim.agrees for claim in spread][1:] == [False, True]  # 16 workers, and the loss
    chosen = [claim for claim in claims if "chosen for" in claim.where]
    assert [claim.agrees for claim in chosen] == [False] * 4  # no cost gives both ratios
    rest = [claim for claim in claims if claim not in spread + chosen]
    # One synchronization begins at the end of a step, so there are fewer than (γ + 1)/k + 1.
    assert [claim.published for claim in rest if not claim.agrees] == [
        "and synchronizes (γ + 1)/k + 1 times"
    ]


def test_the_judge_of_scaling_refuses_another_ordering_and_a_lead_that_shrinks():
    good = {"a": [row(4, 1.0), row(16, 3.0)]}
    assert [claim.agrees for claim in scaling.claims(good)] == [True] * 4
    slower = {"a": [row(4, 1.0), row(16, 3.0, **{LOCAL: 0.2})]}
    assert [claim.agrees for claim in scaling.claims(slower)][1] is False
    shrinks = {"a": [row(4, 3.0), row(16, 1.0)]}
    assert [claim.agrees for claim in scaling.claims(shrinks)] == [True, True, False, False]


def test_time_is_split_into_what_a_worker_did(tmp_path):
    """Two workers, steps of 1 and 2 s, averages of 2·(0.1 s + nothing for the bytes)."""
    simulate(
        {
            "task": {"kind": "digits-mlp"},
            "workers": 2,
            "sync": {"kind": "ssgd"},
            "compute": {
                "kind": "constant",
                "mean_s": 1.0,
                "slow": [{"workers": [1], "factor": 2.0}],
            },
            "network": {"latency_s": 0.1},
            "stop": {"iterations": 3},
        },
        tmp_path / "run",
    )
    split = Split.of(tmp_path / "run", 2, 4.4)  # two whole iterations
    assert (split.compute_s, split.wait_s) == pytest.approx((3.0, 1.0))
    assert split.communicate_s == pytest.approx(0.4)
    half = Split.of(tmp_path / "run", 2, 1.5)  # one still computes, one waits
    assert (half.compute_s, half.communicate_s, half.wait_s) == pytest.approx((1.25, 0.0, 0.25))
    ended = Split.of(tmp_path / "run", 2, 100.0)  # three iterations of 2.2 s, and no more
    assert ended.communicate_s == pytest.approx(0.6)
    assert math.isinf(Split.of(tmp_path / "run", 2, math.inf).compute_s)


# Seconds to 80 %, and of these computing: SSGD and HPSGD compute for as long, Local SGD longer.
AS_SAID = {SSGD: (9.0, 4.8), LOCAL: (6.0, 5.5), HPSGD: (5.0, 5.0)}
SEEDS = (0.97, 1.0, 1.02)  # factors of all times


def accuracies(
    apart: float = 0.0, waits_s: float = 0.0, **changed: tuple[float, float]
) -> dict[str, accuracy.Found]:
    """apart: accuracy of HPSGD above SSGD's. waits_s: of HPSGD before it is at 80 %."""

    def split(seconds: float, compute_s: float, wait_s: float) -> list[Split]:
        communicate_s = seconds - compute_s - wait_s
        return [
            Split(*(each * part for part in (seconds, compute_s, communicate_s, wait_s)))
            for each in SEEDS
        ]

    return {
        name: accuracy.Found(
            {
                "0.4": split(s / 2, compute_s / 2, 0.0),
                "0.8": split(s, compute_s, waits_s if name == HPSGD else 0.0),
            },
            Spread((0.9 + (apart if name == HPSGD else 0.0),) * 3),
        )
        for name, (s, compute_s) in {**AS_SAID, **changed}.items()
    }


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({}, []),
        ({"apart": -0.03}, [1]),
        ({HPSGD: (5.0, 4.7), "waits_s": 0.3}, [2]),
        ({HPSGD: (6.5, 6.5)}, [0, 2 + 1, 4]),
        ({LOCAL: (6.0, 4.6)}, [4]),  # Local SGD computes for the shortest time
        ({SSGD: (9.0, 3.5)}, [3]),  # HPSGD computes for 1.4 times as long as SSGD
        ({LOCAL: (math.inf, math.inf)}, [0]),
    ],
)
def test_the_judge_of_accuracy_refuses_other_times_orders_and_accuracies(changed, wrong):
    found = accuracy.claims("even", accuracies(**changed))
    assert [place for place, claim in enumerate(found) if claim.agrees is not True] == wrong


def test_accuracy_runs_and_is_judged(tmp_path):
    few = data(
        "hpsgd-accuracy",
        "repeats=1",
        "experiment.stop={iterations: 9}",
        "targets=[0.3, 1]",
    )
    claims = accuracy.run(few, tmp_path)
    assert len(claims) == 8


# -- training --------------------------------------------------------------------------------


def trained(**changed: training.Found) -> training.Results:
    """SSGD, Local SGD, HPSGD and PSGD as published."""

    def found(accuracy_: float, step_s: float, rough: float = 0.02) -> training.Found:
        seconds = {f"{target:g}": Spread((100 * target * step_s,) * 2) for target in (0.4, 0.8)}
        values = ((value,) * 2 for value in (accuracy_, step_s, rough))
        accuracy_of, step_of, rough_of = map(Spread, values)
        return training.Found(accuracy_of, step_of, seconds, rough_of)

    rows = {
        SSGD: found(0.9, 0.23),
        LOCAL: found(0.88, 0.12),
        HPSGD: found(0.89, 0.1, 0.01),
        PSGD: found(0.85, 0.1),
    }
    return {("a model", 4): {**rows, **changed}}


def test_the_judge_of_training_refuses_another_accuracy_and_another_order():
    good = trained()
    assert [claim.agrees for claim in training.claims(good)] == [True] * 4
    (rows,) = good.values()
    hpsgd = rows[HPSGD]
    for accuracy_ in (0.86, 0.94):
        worse = trained(**{HPSGD: replace(hpsgd, accuracy=Spread((accuracy_,) * 2))})
        assert [claim.agrees for claim in training.claims(worse)] == [False, True, True, True]
    for step_s in (0.13, 0.09):  # slower than Local SGD; faster than without communication
        other = trained(**{HPSGD: replace(hpsgd, step_s=Spread((step_s,) * 2))})
        assert [claim.agrees for claim in training.claims(other)] == [True, True, False, True]
    late = {"0.4": hpsgd.seconds["0.4"], "0.8": Spread((9.7, 9.7))}
    later = trained(**{HPSGD: replace(hpsgd, seconds=late)})
    assert [claim.agrees for claim in training.claims(later)] == [True, True, True, False]
    rough = trained(**{HPSGD: replace(hpsgd, roughness=Spread((0.03, 0.03)))})
    assert [claim.agrees for claim in training.claims(rough)] == [True, False, True, True]


def test_the_bend_of_a_curve_is_how_far_it_is_from_straight():
    steps = [float(n) for n in range(training.POINTS)]
    straight = [0.02 * n for n in steps]
    zigzag = [value + 0.01 * (n % 2) for n, value in enumerate(straight)]

    def curve(accuracy: list[float]) -> Curve:
        return Curve("a", 2, steps, steps, [1.0] * len(steps), None, accuracy)

    assert training.roughness(curve(straight)) == pytest.approx(0.0, abs=1e-12)
    assert training.roughness(curve(zigzag)) == pytest.approx(0.01)  # 0.01 from its neighbours
    # More evaluations in between change nothing; those beside a step count where they are.
    more = Curve("a", 2, [], [n / 2 for n in range(21)], [], None, [0.01 * n for n in range(21)])
    assert training.roughness(more) == pytest.approx(0.0, abs=1e-12)
    few = Curve("a", 2, [], [0.0, 3.0, 10.0], [], None, [0.0, 0.5, 1.0])
    assert training.roughness(few) == pytest.approx(0.2)  # 0.5 where the line has 0.3


def test_training_runs(tmp_path):
    few = data("hpsgd-training", "repeats=1")
    few["models"] = {"digits-mlp": few["models"]["digits-mlp"]}
    few["models"]["digits-mlp"] |= {"workers": [4]}
    few["models"]["digits-mlp"]["experiment"] |= {"stop": {"iterations": 9}}
    found = training.run(few, tmp_path)
    assert [claim.where.split(",")[0] for claim in found] == [
        "figure 4",
        "figure 4",
        "figure 5 (b)",
        "figure 6 (b)",
    ]
    assert found[2].agrees is True  # times do not depend on the training


# -- for real ------------------------------------------------------------------------------


def pairs(virtual_s: float, *wall_s: float, apart: float = 0.0, wait_s: float = 0.0):
    """A pair for each seed. wait_s: for real; in virtual time a worker waits for 0.1 s."""

    def summary(wait_s: float) -> dict[str, Any]:
        return {"accuracy": 0.9, "synchronizations": 3, "seconds": {"wait": wait_s}}

    return [
        real.Pair(virtual_s, seconds, summary(0.1), summary(wait_s), apart) for seconds in wall_s
    ]


AS_VIRTUAL_TIME_SAID = {
    "SSGD": pairs(9.0, 9.1, 9.0, 9.05),
    "Local SGD": pairs(6.0, 6.1, 6.05, 6.0),
    "HPSGD": pairs(5.0, 5.1, 5.05, 5.0, apart=0.1),
    "PSGD": pairs(4.9, 4.95, 4.9, 4.92),  # 2 % from HPSGD: this order is not judged
}


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({}, []),
        ({"SSGD": pairs(9.0, 9.6, 9.5, 9.4)}, [0]),  # 1.06 times as long on average
        ({"Local SGD": pairs(6.0, 6.1, 6.05, 6.0, apart=1e-4)}, [1]),
        ({"HPSGD": pairs(5.0, 5.1, 5.05, 5.0, wait_s=0.4)}, [2]),  # 0.3 s more than 5 % of 5 s
        ({"HPSGD": pairs(5.0, 6.2, 6.3, 6.4)}, [0, 3]),
    ],
)
def test_what_is_not_as_virtual_time_said_differs(changed, wrong):
    found = real.claims({**AS_VIRTUAL_TIME_SAID, **changed})
    assert [place for place, claim in enumerate(found) if claim.agrees is not True] == wrong
