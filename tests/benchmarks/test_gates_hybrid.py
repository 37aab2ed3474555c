"""Gates of the hybrid simulator's experiment: curves as published agree, others do not."""

from __future__ import annotations

import math

import pytest
from benchmarks.papers.curves import Curve
from benchmarks.papers.experiments import EXPERIMENTS
from benchmarks.papers.hybrid_simulator import hybrid_simulator as judge

from outpace.config.reading import experiment_from
from outpace.support.yaml_files import read_yaml

SEEDS = (0.98, 1.0, 1.02)  # of three seeds, relative to the mean


def falling(workers, seconds, iterations):
    """Return a run whose loss falls from 2 to 0 and is 1, the target, after these."""
    return Curve(
        "", workers, [0.0, 2 * seconds], [0.0, 2 * iterations], [2.0, 0.0], None, [0.5, 0.9]
    )


def flat(workers, *loss, error=None):
    ticks = [float(tick) for tick in range(len(loss))]
    return Curve("", workers, ticks, ticks, list(loss), error)


def published():
    """Return three runs of each variant that are as section 4.4 has it."""
    needs = {"1 worker": (1, 14.0, 70.0)}
    for mode in judge.MODES:
        for n, iterations in ((2, 40.0), (4, 28.0)):
            for name, step_s in zip(judge.named(mode, n), (0.2, 0.2, 0.22), strict=False):
                needs[name] = n, step_s * iterations, iterations
            slow_s = 0.7 if mode == "sync" else 0.5
            needs[f"{mode} {n}, 100 ms"] = n, slow_s * iterations, iterations
    needs |= {f"{remedy} {n}": (n, 9.0, 45.0) for remedy in judge.REMEDIES for n in judge.MANY}
    curves = {
        name: [falling(n, seconds * seed, iterations * seed) for seed in SEEDS]
        for name, (n, seconds, iterations) in needs.items()
    }
    curves["naive 8"] = [flat(8, 2.3, 3.0, 0.5, 0.5, 0.5)] * 3
    curves["naive 16"] = [flat(16, 2.3, 2.4, 2.2, 2.3)] * 3
    curves["naive 32"] = [flat(32, 2.3, 800.0, 2.3)] * 3
    curves["naive 64"] = [flat(64, 2.3, error="not finite")] * 3
    return curves


def verdicts(curves):
    data = read_yaml(EXPERIMENTS["hybrid_simulator"])
    base = {key: value for key, value in data.items() if key not in ("variants", "seeds")}
    experiment = experiment_from(base | {"task": {"kind": "digits-mlp"}}, "test")
    found = judge.claims(curves, {"naive 8": experiment})
    return {f"{each.where}: {each.published}": each.agrees for each in found}


TIME, ITERATIONS = "figures 8, 9: virtual time: ", "figures 10, 11: iterations: "
FOUR_FASTER = TIME + "synchronous: four workers converge faster than two (0, 1, 10 ms)"
COINCIDE = TIME + "synchronous: the curves of 0, 1 and 10 ms basically coincide"
SLOW = TIME + "synchronous: 100 ms is not particularly desirable"
AS_FAST = TIME + "at 0, 1 and 10 ms asynchronous converges as fast as synchronous"
FASTER = TIME + "at 100 ms asynchronous converges faster than synchronous"
FEWER = ITERATIONS + "synchronous: four workers converge faster than two"
ALIKE = ITERATIONS + "the curves of the four latencies basically coincide, in both modes"
SAME_MANY = {
    remedy: f"figures 12, 13: a modified update ({remedy}): 8 to 64 workers have basically the "
    "same curve by iterations"
    for remedy in judge.REMEDIES
}


def test_runs_as_published_agree_with_every_claim():
    judged = [agrees for agrees in verdicts(published()).values() if agrees is not None]
    assert judged == [True] * 15


@pytest.mark.parametrize(
    ("variant", "seconds", "iterations", "claim"),
    [
        # Published: two workers need 8 s and 40 iterations, four 5.6 s and 28.
        ("sync 4, 1 ms", 8.5, 28.0, FOUR_FASTER),
        ("sync 2, 10 ms", 10.5, 40.0, COINCIDE),  # 1.31 times 8 s
        ("sync 2, 100 ms", 9.5, 40.0, SLOW),  # only 1.19 times 8 s
        ("async 4, 0 ms", 4.2, 28.0, AS_FAST),  # 5.6 / 4.2 = 1.33
        ("async 2, 100 ms", 29.0, 40.0, FASTER),  # synchronous 28 s
        ("sync 4, 10 ms", 6.2, 41.0, FEWER),
        ("mean 64", 12.0, 60.0, SAME_MANY["mean"]),
        ("by staleness 64", math.inf, math.inf, SAME_MANY["by staleness"]),
    ],
)
def test_a_run_that_contradicts_a_claim_differs(variant, seconds, iterations, claim):
    curves = published()
    workers = curves[variant][0].workers
    curves[variant] = [
        falling(workers, seconds * seed, iterations * seed)
        if math.isfinite(seconds)
        else flat(workers, 2.3, 2.3)
        for seed in SEEDS
    ]
    assert verdicts(curves)[claim] is False
