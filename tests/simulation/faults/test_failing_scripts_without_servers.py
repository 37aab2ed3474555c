"""Scripts without servers in virtual time whose workers stand still, are slow, cut off, or die."""

from __future__ import annotations

from functools import cache

import pyarrow.compute as pc
import pytest
from tests.simulation.faults.ledger import random_faults
from tests.simulation.scripts.test_going_on import Killed, killed_after
from tests.support.paths import SCRIPTS
from tests.support.shared_out import require_shared_out

import outpace
from outpace.errors import OutpaceWarning, RunError

SAVED = {"checkpoint": {"every_updates": 3}}
CONFIG = {
    "task": {"kind": "script", "path": str(SCRIPTS / "kept.py")},  # 9 iterations
    "workers": 2,
    "sync": {"kind": "ssgd"},
    "compute": {"kind": "constant", "mean_s": 0.1},
}
BITWISE = {
    "ssgd": {"kind": "ssgd"},
    "local-sgd": {"kind": "local-sgd", "every": 2},
    "diloco": {"kind": "diloco", "every": 2},
    "psgd": {"kind": "psgd"},
}
# With these, what is averaged with what depends on timing.
RELAXED = {
    "gossip": {"kind": "gossip"},
    "hpsgd": {"kind": "hpsgd"},
    "overlap": {
        "kind": "diloco",
        "every": 3,
        "overlap": True,
        "outer_lr": 1.0,
        "outer_momentum": 0.0,
    },
}


SILENCES = ("pause", 3.6), ("partition", 5.3)


def crash(at_s, worker):
    return {"at_s": at_s, "kind": "crash", "worker": worker}


def failing(*schedule, out=None, lease_s=5.0, **changes):
    recovery = {"detected_s": 0.01, "worker_s": 0.3, "servers_s": 0.5, "lease_s": lease_s}
    faults = {"schedule": list(schedule), "recovery": recovery}
    return outpace.simulate({**CONFIG, **changes, "faults": faults}, out)


@cache
def plain(kind="ssgd"):
    return outpace.simulate({**CONFIG, "sync": BITWISE[kind]})


def logged(result, *more):
    """Return what each script has logged, by worker, in its order."""
    rows = result.metrics.to_pylist()
    names = ("iteration", "train_loss", "lr", "seen", *more)
    return {n: [[row[k] for k in names] for row in rows if row["worker"] == n] for n in (0, 1)}


def require_each_iteration_once(result, iterations):
    """Assert that the trace has each iteration once, and the sums have those of the trace."""
    rows = result.trace.filter(pc.equal(result.trace["event"], "iteration")).to_pylist()
    assert sorted((row["worker"], row["iteration"]) for row in rows) == [
        (worker, iteration) for worker in (0, 1) for iteration in range(iterations)
    ]
    computed_s = sum(row["computed_ns"] - row["start_ns"] for row in rows) / 1e9
    assert result.summary["seconds"]["compute"] == pytest.approx(computed_s / 2)


def test_a_script_meets_failures_and_trains_the_same():
    schedule = [
        {"at_s": 0.25, "kind": "pause", "worker": 1, "for_s": 0.4},  # iteration 2: until 0.7
        {"at_s": 0.65, "kind": "slow", "worker": 0, "for_s": 0.1, "factor": 3.0},  # until 1.0
        {"at_s": 1.05, "kind": "partition", "worker": 0, "for_s": 0.1},  # an average at 1.1
        {"at_s": 1.2, "kind": "loss", "worker": 1},  # of the average at 1.25, which takes 0.2
        {"at_s": 1.5, "kind": "reorder", "worker": 0, "for_s": 0.02},
        {"at_s": 1.6, "kind": "duplicate", "worker": 0},
    ]
    found = failing(*schedule)
    assert plain().summary["virtual_time_s"] == pytest.approx(0.9)
    assert found.summary["virtual_time_s"] == pytest.approx(0.9 + 0.4 + 0.2 + 0.05 + 0.2 + 0.02)
    assert found.summary["parameters_digest"] == plain().summary["parameters_digest"]
    assert logged(found) == logged(plain())
    assert found.summary["faults"]["lost_s"]["standing"] == pytest.approx(0.4 / 2)
    assert found.summary["faults"]["goodput"] == pytest.approx(0.9 / 1.77)


@pytest.mark.parametrize(
    ("kind", "left"),
    [
        # A death in iteration 5 is known at 0.56 s, and all go on at 1.06 s. The next one is known
        # at 1.48 s, and all go on at 1.98 s. Saved are the first three and six iterations;
        ("ssgd", 3),
        # four and six, because there is an average after each second one;
        pytest.param("local-sgd", 3, marks=pytest.mark.slow),
        # none, since the third average is the first one that is saved;
        pytest.param("diloco", 9, marks=pytest.mark.slow),
        # of the worker that is further behind three and six, while the other one is saved later.
        ("psgd", 3),
    ],
)
def test_scripts_whose_processes_die_train_bitwise_the_same_and_log_everything_once(
    kind, left, tmp_path
):
    schedule = crash(0.55, 1), crash(1.47, 0)
    found = failing(*schedule, sync=BITWISE[kind], **SAVED, out=tmp_path / "run")
    assert found.summary["parameters_digest"] == plain(kind).summary["parameters_digest"]
    assert logged(found) == logged(plain(kind))
    assert (found.summary["updates_lost"], found.summary["iterations"]) == (0, [9, 9])
    assert (found.summary["restarts"], found.summary["gradients_applied"]) == (2, 18)
    assert found.summary["virtual_time_s"] == pytest.approx(1.98 + 0.1 * left)
    require_each_iteration_once(found, 9)


@pytest.mark.parametrize(
    "kind", ["gossip", "hpsgd", pytest.param("overlap", marks=pytest.mark.slow)]
)
def test_no_sample_is_lost_or_counts_twice_whatever_fails(kind):
    task = {"kind": "script", "path": str(SCRIPTS / "counted.py")}  # 30 iterations
    faults = random_faults(5, workers=2, servers=0, until_s=2.5)
    faults += [crash(0.72, 1), crash(2.9, 0)]
    faults += [{"kind": kind, "at_s": at, "worker": 1, "for_s": 0.8} for kind, at in SILENCES]
    found = failing(
        *faults,
        task=task,
        sync=RELAXED[kind],
        network={"latency_s": 0.02},  # averages take a part of an iteration
        checkpoint={"every_s": 0.45},
        lease_s=0.5,  # both are lost
    )
    counts = found.parameters["counts"]
    assert counts.allclose(counts.new_full((), -1.0), rtol=0, atol=1e-5)
    assert found.summary["restarts"] >= 3
    assert (found.summary["iterations"], found.summary["gradients_applied"]) == ([30, 30], 60)
    assert found.summary["updates_lost"] == 0
    if kind == "overlap":  # else what a worker that comes back alone computes again is there twice
        require_each_iteration_once(found, 30)


@pytest.mark.filterwarnings("ignore:the optimizers of")
def test_optimizers_of_a_class_that_only_the_script_knows_go_back_too():
    task = {"kind": "script", "path": str(SCRIPTS / "kept_apart.py"), "arguments": ["own"]}
    whole = outpace.simulate({**CONFIG, "task": task})
    found = failing(crash(0.55, 0), task=task, **SAVED)
    assert found.summary["restarts"] == 1
    assert logged(found, "time_s")[1][:3] == logged(whole, "time_s")[1][:3]
    assert logged(found) == logged(whole)
    assert found.summary["parameters_digest"] == whole.summary["parameters_digest"]


def test_a_resumed_script_meets_the_failures_that_are_to_come(tmp_path, monkeypatch):
    recovery = {"detected_s": 0.01, "worker_s": 0.3, "servers_s": 0.5}
    faults = {"schedule": [crash(0.25, 0), crash(1.35, 1)], "recovery": recovery}
    config = {**CONFIG, **SAVED, "faults": faults}
    with monkeypatch.context() as patch:
        killed_after(2, patch)  # after iteration 3, at 0.25 + 0.51 + 0.3 s
        with pytest.raises(Killed):
            outpace.simulate(config, tmp_path / "run")
    found = outpace.simulate(None, resume=tmp_path / "run")
    # Iteration 5 begins at 1.26 s; with the death in it all go on with iteration 3 at 1.86 s.
    assert found.summary["virtual_time_s"] == pytest.approx(1.86 + 0.6)
    assert found.summary["parameters_digest"] == plain().summary["parameters_digest"]
    assert logged(found) == logged(plain())
    assert found.summary["faults"]["worker_losses"] == 2
    assert found.summary["restarts"] == 2


def test_a_run_that_shall_stop_ends_with_the_loss():
    with pytest.raises(RunError, match=r"worker-1 was killed by SIGKILL \(after 0.56"):
        failing(crash(0.55, 1), on_worker_loss="stop", **SAVED)


def test_scripts_that_keep_nothing_begin_anew_and_what_they_did_is_lost_each_time():
    task = {"kind": "script", "path": str(SCRIPTS / "plain.py")}
    changes = {"task": task, "stop": {"iterations": 9}, **SAVED}
    with pytest.warns(OutpaceWarning, match="scripts of worker-0, worker-1 begin anew"):
        found = failing(crash(0.55, 1), crash(1.22, 1), **changes)
    assert (found.summary["iterations"], found.summary["restarts"]) == ([9, 9], 2)
    # Saved after three iterations; both had computed two since, and then one.
    assert found.summary["updates_lost"] == 2 * 2 + 2 * 1


def test_a_script_with_collectives_of_its_own_cannot_lose_a_process(tmp_path):
    arguments = ["asynchronous", str(tmp_path)]  # the second barrier is at 0.2 s
    task = {"kind": "script", "path": str(SCRIPTS / "ddp_vectors.py"), "arguments": arguments}
    with pytest.raises(RunError, match=r"worker-1 was killed .* collectives of their own"):
        failing(crash(0.15, 1), task=task, sync={"kind": "hpsgd"})


def test_a_comparison_of_a_script_shows_what_failures_cost():
    recovery = {"detected_s": 0.01, "servers_s": 0.5}
    faults = {"schedule": [crash(0.55, 1)], "recovery": recovery}
    variants = [{"name": kind, "sync": {"kind": kind}} for kind in ("ssgd", "psgd")]
    config = {**CONFIG, **SAVED, "faults": faults, "variants": variants}
    del config["sync"]
    found = {row.variant.name: row.summary for row in outpace.compare(config)}
    # Repeated are the time since 0.3 s, and since 0.4 s, when the last of the models was saved.
    for kind, repeated_s in (("ssgd", 0.25), ("psgd", 0.15)):
        costs = found[kind]["faults"]
        assert found[kind]["virtual_time_s"] == pytest.approx(1.06 + 0.6)
        assert costs["goodput"] == pytest.approx(0.9 / 1.66)
        assert (costs["worker_losses"], costs["happened"]["crash"]) == (1, 1)
        lost_s = {"detection": 0.01, "restart": 0.5, "repeated": repeated_s}
        assert {cause: costs["lost_s"][cause] for cause in lost_s} == pytest.approx(lost_s)


@pytest.mark.filterwarnings("ignore:the script of worker-1 took")
@pytest.mark.parametrize("kind", ["psgd", "hpsgd"])
def test_a_script_that_has_ended_begins_again_with_the_others(kind):
    """Once one has ended no checkpoint is taken: all go back to one of before."""
    task = {"kind": "script", "path": str(SCRIPTS / "uneven.py"), "arguments": ["keep"]}
    found = failing(crash(1.35, 0), task=task, sync={"kind": kind}, **SAVED)
    assert (found.summary["restarts"], found.summary["iterations"]) == (1, [30, 4])
    assert found.summary["gradients_applied"] == 34
    done = {
        n: [row["done"] for row in found.metrics.to_pylist() if row["worker"] == n] for n in (0, 1)
    }
    assert done == {0: list(range(1, 31)), 1: [1, 2, 3, 4]}


def test_a_run_that_ends_in_its_first_iteration_has_no_goodput():
    found = failing(stop={"virtual_time_s": 0.05})
    assert (found.summary["gradients_applied"], found.summary["faults"]["goodput"]) == (0, None)


@pytest.mark.parametrize("kind", ["ssgd", pytest.param("hpsgd", marks=pytest.mark.slow)])
def test_a_worker_that_is_lost_after_a_resume_with_more_of_them_keeps_its_new_share_of_the_data(
    kind, tmp_path, monkeypatch
):
    config = {
        **CONFIG,
        "task": {"kind": "script", "path": str(SCRIPTS / "counted.py")},
        "sync": {"kind": kind},
        "checkpoint": {"every_s": 0.25, "keep": 99},
        "faults": {
            "schedule": [crash(0.66, 1)],  # between the third checkpoint and the next one
            "recovery": {"detected_s": 0.01, "worker_s": 0.3, "servers_s": 0.5},
        },
    }
    with monkeypatch.context() as patch:
        killed_after(3, patch)
        with pytest.raises(Killed):
            outpace.simulate(config, tmp_path / "run")
    found = outpace.simulate(None, resume=tmp_path / "run", workers=4)
    assert found.summary["restarts"] == 1
    require_shared_out(tmp_path / "run", found)
