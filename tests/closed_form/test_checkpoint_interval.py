"""The cost of failures with checkpoints, against a closed form (Young 1974, Daly 2006).

All processes begin again D seconds after a failure, and failures come at the constant rate 1/M. A
segment of work between two checkpoints takes s seconds, and is repeated from its beginning. The
expected time for a segment is then (M + D)·(exp(s/M) − 1), by renewal theory; in Daly 2006, eq. 13,
restarts can also fail.
"""

import math
import statistics

import pytest

import outpace

MTBF_S, DETECTED_S, RESTART_S = 150.0, 1.0, 5.0
STEP_S, ITERATIONS = 1.0, 2000
SEEDS = 12


def run(every: int, seed: int) -> outpace.Result:
    """Run BSP with a checkpoint every `every` iterations of one second."""
    return outpace.simulate(
        {
            "task": {"kind": "timing", "parameters": 2},
            "workers": 1,
            "seed": seed,
            "sync": {"kind": "bsp"},
            "compute": {"kind": "constant", "mean_s": STEP_S},
            "stop": {"iterations": ITERATIONS},
            "checkpoint": {"every_updates": every},
            "faults": {
                "servers": {"mtbf_s": MTBF_S},
                "recovery": {"detected_s": DETECTED_S, "servers_s": RESTART_S},
            },
        }
    )


def expected_s(every: int) -> float:
    """Return the expected time of the run."""
    segment_s = every * STEP_S
    per_segment_s = (MTBF_S + DETECTED_S + RESTART_S) * (math.exp(segment_s / MTBF_S) - 1)
    return ITERATIONS / every * per_segment_s


def test_goodput_under_random_failures_is_that_of_the_closed_form():
    goodputs = [run(20, seed).summary["faults"]["goodput"] for seed in range(SEEDS)]
    error = statistics.stdev(goodputs) / math.sqrt(SEEDS)
    expected = ITERATIONS * STEP_S / expected_s(20)
    # so that a model without repeated work, which is wrong by 6 %, would be rejected
    assert error < 0.01
    assert statistics.mean(goodputs) == pytest.approx(expected, abs=3 * error)


def test_the_lost_time_by_cause_is_the_whole_difference_to_the_undisturbed_run():
    summary = run(20, 3).summary
    lost = summary["faults"]["lost_s"]
    assert summary["faults"]["server_losses"] > 3
    work_s = ITERATIONS * STEP_S
    assert summary["virtual_time_s"] == pytest.approx(work_s + sum(lost.values()))
    assert lost["restart"] == pytest.approx(RESTART_S * summary["restarts"])
    assert lost["detection"] == pytest.approx(DETECTED_S * summary["restarts"])
