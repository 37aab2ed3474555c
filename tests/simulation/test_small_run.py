"""A small run; every event was computed by hand."""

import pytest

from outpace.errors import RunError
from outpace.experiment.running import simulate

# Worker 0 takes 1 s, worker 1 takes 3 s (slow by a factor); no network.
BASE = {
    "task": {"kind": "timing", "parameters": 10},
    "workers": 2,
    "compute": {
        "kind": "constant",
        "mean_s": 1.0,
        "slow": [{"workers": [1], "factor": 3.0}],
    },
    "stop": {"iterations": 4},
}


def finished(result):
    """(worker, iteration) -> (start, computed, end, held) in seconds."""
    return {
        (row["worker"], row["iteration"]): tuple(
            row[column] / 1e9 for column in ("start_ns", "computed_ns", "end_ns", "held_ns")
        )
        for row in result.trace.to_pylist()
        if row["event"] == "iteration"
    }


def test_bsp_goes_at_the_pace_of_the_slowest():
    result = simulate({**BASE, "sync": {"kind": "bsp"}})
    assert finished(result) == {
        (0, 0): (0, 1, 3, 2),
        (1, 0): (0, 3, 3, 0),
        (0, 1): (3, 4, 6, 2),
        (1, 1): (3, 6, 6, 0),
        (0, 2): (6, 7, 9, 2),
        (1, 2): (6, 9, 9, 0),
        (0, 3): (9, 10, 12, 2),
        (1, 3): (9, 12, 12, 0),
    }
    assert result.summary["virtual_time_s"] == 12
    assert result.summary["delayed_pulls"] == 4
    assert result.summary["seconds"] == {"compute": 8, "communicate": 0, "wait": 4}


def test_lazy_ssp_waits_once_and_long():
    # s = 1: worker 0 pulls with i = 0 at 1 s (0 < 0+1: continue), i = 1 at 2 s (held until
    # clock 2, when worker 1 has pushed its iteration 1, at 6 s), i = 2 at 7 s (2 < 2+1),
    # i = 3 at 8 s (held until clock 4, at 12 s).
    result = simulate({**BASE, "sync": {"kind": "ssp", "staleness": 1}})
    own = {key[1]: value for key, value in finished(result).items() if key[0] == 0}
    assert own == {0: (0, 1, 1, 0), 1: (1, 2, 6, 4), 2: (6, 7, 7, 0), 3: (7, 8, 12, 4)}
    assert result.summary["delayed_pulls"] == 2


def test_asp_never_waits_and_its_staleness_is_what_the_other_did_meanwhile():
    result = simulate({**BASE, "sync": {"kind": "asp"}})
    assert result.summary["seconds"]["wait"] == 0
    pushes = [row for row in result.trace.to_pylist() if row["event"] == "push"]
    of = {(row["worker"], row["iteration"]): row["staleness"] for row in pushes}
    # Worker 0 pushes at 1, 2, 3, 4 s, worker 1 at 3, 6, 9, 12 s; at 3 s worker 1's push
    # was scheduled first (at 0 s), so worker 0's third gradient misses one update.
    assert of == {
        (0, 0): 0,
        (0, 1): 0,
        (0, 2): 1,
        (0, 3): 0,
        (1, 0): 2,
        (1, 1): 2,
        (1, 2): 0,
        (1, 3): 0,
    }


def test_with_virtual_time_as_stop_what_is_under_way_is_left_unfinished():
    result = simulate({**BASE, "sync": {"kind": "bsp"}, "stop": {"virtual_time_s": 7.5}})
    assert result.summary["virtual_time_s"] == 7.5
    assert result.summary["iterations"] == [3, 2]
    assert result.summary["gradients_applied"] == 4
    outcomes = [row["outcome"] for row in result.trace.to_pylist() if row["event"] == "push"]
    assert outcomes == ["applied"] * 4 + ["pending"]
    assert result.summary["delayed_pulls"] == 3, "the pull still held counts too"


def test_a_run_that_comes_to_the_end_of_virtual_time_has_failed():
    with pytest.raises(
        RunError, match="virtual time is over after 292 years and the run has not ended"
    ):
        simulate(
            {
                **BASE,
                "sync": {"kind": "bsp"},
                "network": {"latency_s": 1e9},
                "stop": {"iterations": 99},
            }
        )


def test_dsps_waits_for_the_laggards_next_push_as_its_rule_expects():
    # Steps of 1 s and 3.1 s, s = 1, extra = 2. Worker 0's pulls: i = 0 at 1 s, within the bound;
    # i = 1 at 2 s, lead 1: worker 1 has no step time yet, so the bound is 1 and the pull is held
    # until worker 1's push at 3.1 s; i = 2 at 4.1 s, lead 1: without further iterations it would
    # wait 2.1 s for the push at 6.2 s, after one 1.1 s, after two 0.1 s, so r* = 2 and the bound
    # is 3; i = 3 at 5.1 s, lead 2: after one more 0.1 s, bound 3; i = 4 at 6.1 s, lead 3: the
    # bound cannot grow, and the expected wait is 0.1 s, until 6.2 s. A lazy buffer would hold
    # that pull until clock 5, worker 1's fifth push at 15.5 s.
    compute = {**BASE["compute"], "slow": [{"workers": [1], "factor": 3.1}]}
    sync = {"kind": "dsps", "staleness": 1, "extra": 2}
    result = simulate({**BASE, "compute": compute, "sync": sync, "stop": {"iterations": 5}})
    own = {key[1]: value for key, value in finished(result).items() if key[0] == 0}
    assert own == {
        0: (0, 1, 1, 0),
        1: (1, 2, 3.1, 1.1),
        2: (3.1, 4.1, 4.1, 0),
        3: (4.1, 5.1, 5.1, 0),
        4: (5.1, 6.1, 6.2, 0.1),
    }
