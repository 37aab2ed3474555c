"""Skipped pushes and pulls: their savings, the use of gradients, and that none waits."""

from __future__ import annotations

from functools import cache

import pytest
from tests.support.runtimes import BOUNDS, SERVERS, SYNCS, WORKERS, config, every_runtime, rows

from outpace.errors import PolicyError
from outpace.experiment.running import run, simulate

IN_A_ROW = 2
SKIP = {
    "push": {"probability": 0.3, "gradient": "accumulate"},
    "pull": {"probability": 0.3, "in_a_row": IN_A_ROW},
}
MINE = """
def up_to(view, most):
    return view.in_a_row < most

def small(view, below):
    return view.norm() < below

def always(view):
    return True

def by_norm_of_a_pull(view):
    return view.norm() < 1

def neither(view):
    return None
"""


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)


@cache
def outcome(run, sync):
    """Return the run that most tests use; it is made once."""
    return run(config(sync, skip=SKIP))


def check_all_rows(result, sync):
    """Require that every iteration pushes to all servers, and pulls from all or none."""
    summary = result.summary
    iterations = rows(result, "iteration")
    computed = {(row["worker"], row["iteration"]) for row in iterations}
    skipped = {(row["worker"], row["iteration"]) for row in iterations if row["shard"] is None}
    last = {worker: max(i for w, i in computed if w == worker) for worker in range(WORKERS)}
    pushes = [(row["worker"], row["iteration"], row["shard"]) for row in rows(result, "push")]
    assert len(pushes) == len(set(pushes)) == len(computed) * SERVERS
    pulled = {key for key in computed if key not in skipped or key[1] == last[key[0]]}
    pulls = [(row["worker"], row["iteration"], row["shard"]) for row in rows(result, "pull")]
    assert sorted(pulls) == sorted((*key, shard) for key in pulled for shard in range(SERVERS))
    assert summary["pulls_skipped"] == len(skipped) > 0
    unsent = [row for row in rows(result, "push") if row["outcome"] == "skipped"]
    assert summary["pushes_skipped"] * SERVERS == len(unsent) > 0
    assert summary["pushes_abstained"] == 0
    applied = summary["gradients_applied"] + summary["gradients_dropped"]
    assert applied + summary["pushes_skipped"] == len(computed) == sum(summary["iterations"])
    for row in rows(result, "pull"):
        if sync in BOUNDS:
            assert row["iteration"] < row["clock"] + BOUNDS[sync]
    for worker in range(WORKERS):
        in_a_row = 0
        for iteration in sorted(i for w, i in computed if w == worker):
            in_a_row = in_a_row + 1 if (worker, iteration) in skipped else 0
            assert in_a_row <= IN_A_ROW


@pytest.mark.parametrize("sync", SYNCS)
def test_no_strategy_waits_for_what_is_skipped(sync):
    check_all_rows(outcome(simulate, sync), sync)


def test_every_skipped_push_and_pull_of_a_real_run_is_in_trace_and_summary():
    check_all_rows(outcome(run, "bsp"), "bsp")


@every_runtime
def test_the_same_iterations_are_skipped_on_every_runtime_and_with_every_strategy(run):
    def skipped(result):
        pushes = {
            (row["worker"], row["iteration"], row["shard"])
            for row in rows(result, "push")
            if row["outcome"] == "skipped"
        }
        pulls = {
            (row["worker"], row["iteration"])
            for row in rows(result, "iteration")
            if row["shard"] is None
        }
        return pushes, pulls

    assert skipped(outcome(run, "bsp")) == skipped(outcome(simulate, "asp"))


# -- by hand -----------------------------------------------------------------------------------


def timed(skip, **changes):
    """Run two workers that compute 1 s, and two servers with 50 elements each, 0.1 s each way."""
    return simulate(
        {
            "task": {"kind": "timing", "parameters": 100},
            "workers": 2,
            "servers": 2,
            "compute": {"kind": "constant", "mean_s": 1.0},
            "network": {"latency_s": 0.1},
            "sync": {"kind": "bsp"},
            "stop": {"iterations": 6},
            "skip": skip,
            **changes,
        }
    )


def ends(result, worker=0):
    found = [row for row in rows(result, "iteration") if row["worker"] == worker]
    return [row["end_ns"] / 1e9 for row in found]


def test_a_skipped_pull_saves_its_round_trip_and_its_messages():
    # An iteration takes 1 s and 0.2 s for push and reply, but 1 s if its pull is skipped: 2 and 5.
    # After the last one the worker pulls, and leaves when its answers come, at 7.0 s.
    result = timed({"pull": {"every": 3}})
    assert ends(result) == pytest.approx([1.2, 2.4, 3.4, 4.6, 5.8, 6.8])
    assert result.summary["virtual_time_s"] == pytest.approx(7.0)
    # Per worker and server: 6 pushes; pulls of iterations 0, 1, 3, 4 and the last; their replies.
    assert result.summary["messages"] == 2 * 2 * (6 + 5 + 5)
    assert result.summary["pulls_skipped"] == 2 * 2


def test_a_worker_that_skips_pulls_leads_a_barrier_by_no_more_than_it_may():
    # Worker 1 is slow. Worker 0 would skip every pull, but pulls after 3 skipped ones: after
    # iteration 3, at 4 s. That pull waits for worker 1's iteration 3, so for 4 x 10 s.
    slow = {"kind": "constant", "mean_s": 1.0, "slow": [{"workers": [1], "factor": 10}]}
    skip = {"pull": {"condition": "mine.py:always", "in_a_row": 3}}
    result = timed(skip, compute=slow)
    assert ends(result) == pytest.approx([1, 2, 3, 40.2, 41.2, 42.2])
    assert ends(result, 1) == pytest.approx([10, 20, 30, 40.2, 50.2, 60.2])


def descended(skip, iterations=4):
    """Return the result of descent from w = 1 with the gradient w and a rate of 0.1."""
    result = simulate(
        {
            "task": {"kind": "quadratic", "eigenvalues": [1.0]},
            "workers": 1,
            "compute": {"kind": "constant", "mean_s": 1.0},
            "sync": {"kind": "bsp"},
            "optimizer": {"kind": "sgd", "lr": 0.1},
            "stop": {"iterations": iterations},
            "skip": {"push": skip},
        }
    )
    return float(result.parameters["w"][0]), result.summary["pushes_skipped"]


@pytest.mark.parametrize(
    ("skip", "expected"),
    [
        # Iterations 1 and 3 are skipped. Dropped: steps after 0 and 2 only.
        ({"every": 2}, (0.9 * 0.9, 2)),
        # Iteration 2 sends the gradient of 1 with its own, both at w = 0.9; 3's is never sent.
        ({"every": 2, "gradient": "accumulate"}, (0.9 - 0.1 * 2 * 0.9, 2)),
        # Sends after two skipped ones: all three gradients of w = 1 at iteration 2.
        (
            {"condition": "mine.py:up_to", "arguments": {"most": 2}, "gradient": "accumulate"},
            (1 - 0.1 * 3, 3),
        ),
        # |g| is 1, then 0.9 and always below 0.95.
        ({"condition": "mine.py:small", "arguments": {"below": 0.95}}, (0.9, 3)),
        # The accumulated gradient counts: 1 sent; 0.9 not sent; 1.8 sent; 0.72 not sent.
        (
            {
                "condition": "mine.py:small",
                "arguments": {"below": 0.95},
                "gradient": "accumulate",
            },
            (0.9 - 0.1 * 1.8, 2),
        ),
    ],
)
def test_what_becomes_of_a_skipped_gradient(skip, expected):
    assert descended(skip) == pytest.approx(expected)


# -- mistakes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("skip", "words"),
    [
        (
            {"push": {"condition": "mine.py:neither"}},
            "mine.py:neither of skip.push must answer true or false, not None for worker 0's push "
            "of iteration 0",
        ),
        (
            {"pull": {"condition": "mine.py:by_norm_of_a_pull"}},
            "mine.py:by_norm_of_a_pull of skip.pull raised AttributeError",
        ),
    ],
)
def test_a_condition_that_fails_is_named(skip, words):
    with pytest.raises(PolicyError, match=words):
        timed(skip)
