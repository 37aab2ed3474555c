"""Servers with different policies in one run: every worker finishes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outpace.experiment.running import simulate

WORKERS = 4
buffers = st.sampled_from(["lazy", "soft"])
bounds = st.integers(0, 3)
applies = st.sampled_from(["on-arrival", "on-advance"])
syncs = st.one_of(
    st.fixed_dictionaries({"kind": st.just("bsp"), "apply": applies}),
    st.fixed_dictionaries({"kind": st.just("asp"), "apply": applies}),
    st.fixed_dictionaries({"kind": st.just("ssp"), "staleness": bounds, "buffer": buffers}),
    st.fixed_dictionaries(
        {
            "kind": st.just("pssp"),
            "staleness": bounds,
            "block_probability": st.sampled_from([0.0, 0.3, 1.0]),
            "buffer": buffers,
            "coin": st.sampled_from(["worker", "server"]),
        }
    ),
    st.fixed_dictionaries(
        {
            "kind": st.just("dynamic-pssp"),
            "staleness": bounds,
            "alpha": st.sampled_from([1.0, "significance"]),
            "buffer": buffers,
        }
    ),
    st.fixed_dictionaries(
        {"kind": st.just("dsps"), "staleness": bounds, "extra": bounds, "buffer": buffers}
    ),
    st.fixed_dictionaries({"kind": st.just("drop-stragglers"), "quorum": st.integers(1, WORKERS)}),
    st.fixed_dictionaries(
        {
            "kind": st.just("partial-push"),
            "quorum": st.integers(1, WORKERS),
            "timeout_s": st.sampled_from([0.0, 0.05, 1.0, 100.0]),
        }
    ),
    st.fixed_dictionaries(
        {
            "kind": st.just("psp-sampling"),
            "sample": st.integers(0, WORKERS - 1),
            "staleness": bounds,
        }
    ),
)


@st.composite
def clusters(draw):
    servers = draw(st.integers(2, 4))
    lists = st.lists(syncs, min_size=servers, max_size=servers)
    times = sorted(draw(st.lists(st.floats(0.0, 1.5), max_size=3)))
    factors = st.sampled_from([1.0, 1.0, 1.3, 2.0, 7.0])
    slow = [{"workers": [worker], "factor": draw(factors)} for worker in range(WORKERS)]
    config = {
        "seed": draw(st.integers(0, 100)),
        "task": {"kind": "timing", "parameters": 1000},
        "workers": WORKERS,
        "servers": servers,
        "compute": {
            "kind": "lognormal",
            "mean_s": 0.1,
            "cv": draw(st.sampled_from([0.0, 0.3, 1.0])),
            "slow": slow,
        },
        "sync": draw(lists),
        "sync_changes": [{"at_s": time, "sync": draw(lists)} for time in times],
        "stop": {"iterations": draw(st.integers(1, 12))},
    }
    if draw(st.booleans()):
        config["pull"] = {
            "quorum_percent": draw(st.sampled_from([1, 50, 75, 100])),
            "timeout_s": draw(st.sampled_from([0.0, 0.03])),
            "ahead": draw(st.integers(1, 4)),
        }
    if draw(st.booleans()):
        late = {"probability": 0.2, "seconds": 0.4}
        kinds = draw(st.sets(st.sampled_from(["push", "pull", "reply"])))
        delays = [{"message": kind, **late} for kind in sorted(kinds)]
        config["network"] = {"latency_s": 0.01, "bandwidth_bytes_per_s": 1e6, "delays": delays}
    if draw(st.booleans()):
        config["push_time"] = {"kind": "exponential", "mean_s": 0.005}
        config["pull_time"] = {"kind": "constant", "mean_s": 0.003}
    return config


@pytest.mark.filterwarnings("ignore:.*the rule of dsps expects it:outpace.errors.OutpaceWarning")
@settings(max_examples=60)
@given(config=clusters(), tie_seed=st.sampled_from([None, 1]))
def test_every_worker_finishes_whatever_the_servers_follow(config, tie_seed):
    result = simulate(config, tie_seed=tie_seed)  # a deadlock raises
    summary, rows = result.summary, result.trace.to_pylist()
    assert summary["status"] == "complete"
    work = [(row["worker"], row["iteration"]) for row in rows if row["event"] == "iteration"]
    assert set(work) >= {(worker, 0) for worker in range(WORKERS)}
    # A worker has done the last iteration; others may have skipped it.
    assert max(iteration for _, iteration in work) == config["stop"]["iterations"] - 1
    assert len(set(work)) == len(work) == sum(summary["iterations"])
    fates = {"applied", "dropped", "pending"}
    for event in ("push", "pull"):
        mine = [row for row in rows if row["event"] == event]
        assert len(mine) == len(work) * config["servers"]
        unanswered = [row for row in mine if row["end_ns"] is None]
        if event == "pull" and "pull" in config:
            # An answer stands for the pulls before it: who has the last ones may leave.
            last = {worker: max(i for w, i in work if w == worker) for worker, _ in work}
            assert all(row["iteration"] < last[row["worker"]] for row in unanswered)
        else:
            assert not unanswered
        assert event == "pull" or {row["outcome"] for row in mine} <= fates
    if not any("quorum" in str(config[key]) for key in ("sync", "sync_changes")):
        assert summary["iterations"] == [config["stop"]["iterations"]] * WORKERS
        assert summary["gradients_dropped"] == 0
