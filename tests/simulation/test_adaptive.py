"""Adaptive strategies in virtual time: when policies change, and what becomes of gradients."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.support.runtimes import rows

from outpace.config.reading import experiment_from, to_plain
from outpace.engine.servers import tells_pauses
from outpace.errors import ConfigError
from outpace.experiment.running import simulate

BASE = {
    "task": {"kind": "timing", "parameters": 40},
    "workers": 4,
    "servers": 2,
    "compute": {"kind": "constant", "mean_s": 1.0},
    "stop": {"iterations": 30},
}
SLOW = {"workers": [3], "factor": 5.0, "from_s": 4.5, "until_s": 30.0}
MOVING = {**BASE, "compute": {"kind": "constant", "mean_s": 1.0, "slow": [SLOW]}}
SWITCH = {"kind": "adaptive", "rule": "sync-switch", "after": 6}


def test_a_straggler_that_comes_and_goes_changes_the_quorum_and_back():
    longer = {**MOVING, "stop": {"iterations": 60}}
    result = simulate({**longer, "sync": {"kind": "adaptive", "stale": False}})
    # After the first iteration nobody is waited for longer than a tenth of it. The worker would
    # take 5 s from its iteration 5 on, at 5 s. Iterations then take 1.1 s, because the others have
    # pushed after 1 s, and it stops. After five such iterations three others are enough.
    guard, out, back = result.summary["switches"]
    alike, three = "quorum 4, grace 100 ms", "quorum 3, grace 100 ms"
    assert (guard["time_s"], guard["from"], guard["to"]) == (1.0, "quorum 4", alike)
    assert (out["from"], out["to"]) == (alike, three)
    assert out["time_s"] == 5 + 5 * 1.1
    late = [row for row in rows(result, "iteration") if row["bound"] is not None]
    assert {row["worker"] for row in late} == {3}
    assert {row["bound"] - row["start_ns"] for row in late if row["start_ns"] < 29e9} == {5 * 10**9}
    assert "gradients per second" in out["reason"]
    assert (back["from"], back["to"]) == (three, alike)
    assert 30 < back["time_s"] < 40
    # BSP takes 5 s for each of 5 iterations. Here an iteration waits for 0.1 s at most.
    assert 60 < result.summary["virtual_time_s"] <= 60 + 10 * 0.1


def test_the_trace_has_each_switch_with_its_reason():
    result = simulate({**MOVING, "sync": {"kind": "adaptive", "stale": False}})
    guard, out = rows(result, "switch")
    assert [(row["version"], row["lead"], row["bound"]) for row in (guard, out)] == [
        (0, 4, 4),
        (1, 4, 3),
    ]
    assert (guard["reason"], out["reason"]) == ("slow-not-awaited", "more-progress")
    graces = [(row["computed_ns"], row["held_ns"]) for row in (guard, out)]
    assert graces == [(0, 10**8), (10**8, 10**8)]
    assert guard["start_ns"] == guard["end_ns"] == 10**9


def test_sync_switch_is_bsp_and_then_asp_on_all_servers():
    result = simulate({**MOVING, "sync": SWITCH})
    (switch,) = result.summary["switches"]
    assert (switch["iteration"], switch["from"], switch["to"]) == (5, "bsp", "asp")
    at = rows(result, "switch")[0]["start_ns"]
    for pull in rows(result, "pull"):
        if pull["start_ns"] < at:
            assert pull["reason"] in ("within-bound", "beyond-bound")
            assert pull["clock"] > pull["iteration"]
        elif pull["start_ns"] > at:
            assert pull["reason"] == "unbounded"


@pytest.mark.parametrize("tie_seed", [None, 1, 2])
@pytest.mark.parametrize("sync", [SWITCH, {"kind": "adaptive", "stale": True}])
def test_every_gradient_counts_once_or_is_dropped(sync, tie_seed):
    compute = {"kind": "lognormal", "mean_s": 1.0, "cv": 0.5, "slow": [SLOW]}
    result = simulate({**BASE, "compute": compute, "sync": sync}, tie_seed=tie_seed)
    pushes = Counter(
        (row["worker"], row["iteration"], row["shard"]) for row in rows(result, "push")
    )
    assert set(pushes.values()) == {1}
    outcomes = Counter(row["outcome"] for row in rows(result, "push"))
    assert outcomes.keys() <= {"applied", "dropped"}
    computed = sum(result.summary["iterations"])
    assert outcomes.total() == 2 * computed
    if sync is SWITCH:
        assert outcomes["dropped"] == 0
        assert computed == 4 * 30


def test_while_workers_are_alike_the_steps_are_those_of_bsp():
    base = {**BASE, "task": {"kind": "quadratic", "eigenvalues": [1.0, 2.0]}, "servers": 1}
    found = simulate({**base, "sync": {"kind": "adaptive", "stale": False}})
    bsp = simulate({**base, "sync": {"kind": "bsp"}})
    (guard,) = found.summary["switches"]
    assert (guard["from"], guard["to"]) == ("quorum 4", "quorum 4, grace 100 ms")
    assert "switches" not in bsp.summary
    for same in ("parameters_digest", "virtual_time_s"):
        assert found.summary[same] == bsp.summary[same]


def test_with_stale_the_run_begins_as_asp_over_staleness():
    base = {**BASE, "task": {"kind": "quadratic", "eigenvalues": [1.0, 2.0]}, "servers": 1}
    found = simulate({**base, "sync": {"kind": "adaptive", "stale": True}})
    asp = simulate({**base, "sync": {"kind": "asp", "scale": "staleness"}})
    assert found.summary["switches"] == []
    for digest in ("parameters_digest", "trace_digest"):
        assert found.summary[digest] == asp.summary[digest]


def test_workers_tell_pauses_also_if_the_run_begins_with_asp():
    # A quorum, which may come later, leaves workers behind (`Pause`).
    for sync, expected in (({"kind": "adaptive", "stale": True}, True), ({"kind": "asp"}, False)):
        assert tells_pauses(experiment_from({**BASE, "sync": sync}, "test")) is expected


def test_asp_gives_way_to_a_quorum_while_half_of_the_workers_are_slow():
    slow = {"workers": [2, 3], "factor": 6.0, "from_s": 4.5, "until_s": 60.0}
    compute = {"kind": "constant", "mean_s": 1.0, "slow": [slow]}
    sync = {"kind": "adaptive", "stale": True, "noise_scale": 0.25}
    result = simulate({**BASE, "compute": compute, "sync": sync, "stop": {"iterations": 120}})
    out, back = result.summary["switches"][0], result.summary["switches"][-1]
    assert (out["from"], out["to"]) == ("asp", "quorum 2, grace 100 ms")
    assert 4.5 < out["time_s"] < 60 < back["time_s"]
    first, last = (row["start_ns"] for row in (rows(result, "switch")[n] for n in (0, -1)))
    assert rows(result, "switch")[0]["lead"] is None
    stopped = [row for row in rows(result, "push") if row["outcome"] == "abstained"]
    assert {row["worker"] for row in stopped} == {2, 3}
    assert all(first <= row["start_ns"] for row in stopped)
    assert last > first


def test_the_configuration_of_a_run_is_read_again():
    experiment = experiment_from({**BASE, "sync": {**SWITCH, "wire": "bf16"}}, "test")
    assert experiment_from(to_plain(experiment), "test") == experiment


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"barrier": "global"}, "barrier: with adaptive one rule"),
        ({"sync_changes": [{"at_s": 1.0, "sync": {"kind": "bsp"}}]}, "sync_changes: with adaptive"),
        ({"conditions": [{"pull": "mine.py:f"}]}, "conditions: with adaptive"),
        ({"pull": {"quorum_percent": 50}}, "pull: the rule of adaptive"),
        ({"skip": {"push": {"every": 2}}}, "skip: the rule of adaptive"),
        ({"sync": [{"kind": "adaptive"}, {"kind": "bsp"}]}, "sync: with adaptive one rule"),
        ({"sync": [{"kind": "adaptive"}, {"kind": "adaptive"}]}, "sync: with adaptive one rule"),
        (
            {"sync": {"kind": "adaptive", "stale": False, "scale": "linear"}},
            "scale: adaptive has mean or sum",
        ),
        (
            {"sync": {"kind": "adaptive", "rule": "sync-switch"}, "stop": {"virtual_time_s": 9.0}},
            "sync.share: a share of the training needs stop.iterations",
        ),
    ],
)
def test_what_the_rule_cannot_have_is_refused_with_the_reason(changes, named):
    with pytest.raises(ConfigError) as refused:
        experiment_from(
            {**BASE, "sync": {"kind": "adaptive", "stale": False}, **changes}, "test"
        ).load_user_code()
    assert named in str(refused.value)


def test_code_cannot_set_another_policy():
    def control(run):
        run.set_policy("*", "bsp")

    with pytest.raises(ConfigError, match="no policy can be set: with adaptive one rule"):
        simulate({**BASE, "sync": {"kind": "adaptive", "stale": False}}, control=control)


@pytest.mark.parametrize(
    ("optimizer", "stale"),
    [
        ({"kind": "sgd", "weight_decay": 0.1}, True),
        ({"kind": "sgd", "momentum": 0.9}, False),
        ({"kind": "adam"}, False),
    ],
)
def test_it_begins_asynchronously_if_the_optimizer_is_sgd_without_momentum(optimizer, stale):
    data = {**BASE, "optimizer": optimizer}
    found = experiment_from({**data, "sync": {"kind": "adaptive"}}, "test")
    assert to_plain(found)["sync"]["stale"] is stale  # the configuration of the run says so
    own = experiment_from({**data, "sync": {"kind": "adaptive", "stale": not stale}}, "test")
    assert own.sync.stale is not stale


def test_a_script_brings_its_own_optimizer_so_adaptive_begins_with_bsp():
    task = {"kind": "script", "path": "train.py"}
    found = experiment_from(
        {"task": task, "workers": 2, "servers": 1, "sync": {"kind": "adaptive"}}, "test"
    )
    assert found.sync.stale is False
