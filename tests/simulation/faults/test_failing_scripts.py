"""Scripts with servers in virtual time: workers and servers stand still, are slow, cut off, die."""

from __future__ import annotations

import pytest
from tests.support.paths import SCRIPTS

import outpace
from outpace.errors import OutpaceWarning, RunError

PLAIN = {"kind": "script", "path": str(SCRIPTS / "plain.py")}  # keeps nothing, and has no end
SAVED = {"checkpoint": {"every_updates": 3}}
RECOVERY = {"detected_s": 0.01, "worker_s": 0.3, "servers_s": 0.5, "lease_s": 5.0}

CONFIG = {
    "task": {"kind": "script", "path": str(SCRIPTS / "kept.py")},  # 9 iterations
    "workers": 2,
    "servers": 2,
    "sync": {"kind": "bsp"},
    "compute": {"kind": "constant", "mean_s": 0.1},
}


def test_a_script_meets_failures_and_trains_the_same():
    schedule = [
        {"at_s": 0.25, "kind": "pause", "worker": 1, "for_s": 0.4},  # iteration 2: until 0.7
        {"at_s": 0.65, "kind": "slow", "worker": 0, "for_s": 0.1, "factor": 3.0},  # until 1.0
        {"at_s": 1.05, "kind": "pause", "server": 1, "for_s": 0.25},  # answers at 1.3, not 1.1
        {"at_s": 1.45, "kind": "partition", "worker": 0, "for_s": 0.1},  # a push at 1.5
        {"at_s": 1.56, "kind": "duplicate", "worker": 0},
        {"at_s": 1.56, "kind": "reorder", "worker": 1, "for_s": 0.02},
    ]
    plain = outpace.simulate(CONFIG)
    found = outpace.simulate({**CONFIG, "faults": {"schedule": schedule}})
    assert plain.summary["virtual_time_s"] == pytest.approx(0.9)
    assert found.summary["virtual_time_s"] == pytest.approx(0.9 + 0.4 + 0.2 + 0.2 + 0.05 + 0.02)
    assert found.summary["parameters_digest"] == plain.summary["parameters_digest"]
    assert found.summary["faults"]["lost_s"]["standing"] == pytest.approx(0.4 / 2)
    assert found.summary["faults"]["goodput"] == pytest.approx(0.9 / 1.77)


def crash(at_s, **node):
    return {"at_s": at_s, "kind": "crash", **node}


def failing(*schedule, **changes):
    faults = {"schedule": list(schedule), "recovery": RECOVERY}
    return outpace.simulate({**CONFIG, **changes, "faults": faults})


def logged(result):
    """Return what each script has logged, without times: by worker, in its order."""
    rows = result.metrics.to_pylist()
    names = ("iteration", "train_loss", "lr", "seen")
    return {n: [[row[k] for k in names] for row in rows if row["worker"] == n] for n in (0, 1)}


def test_scripts_whose_processes_die_train_bitwise_the_same_and_log_everything_once():
    """Iterations of 0.1 s; states of scripts at 0, after each third iteration, and after 0.25 s.

    The worker that dies in iteration 5 is back at 0.55 + 0.01 + 0.3 s with its state of iteration
    3, computes 3 and 4 again, then 5 to 8. The server that dies in iteration 7 is known to be lost
    at 0.76 s, and all begin again 0.5 s later with iteration 6.
    """
    plain = outpace.simulate(CONFIG)
    died = {
        "worker": failing(crash(0.55, worker=1), **SAVED),
        "server": failing(crash(0.75, server=1), **SAVED),
        "both": failing(crash(0.25, worker=0), crash(0.85, server=0), **SAVED),
    }
    for name, found in died.items():
        assert found.summary["parameters_digest"] == plain.summary["parameters_digest"], name
        assert logged(found) == logged(plain), name
        assert (found.summary["updates_lost"], found.summary["iterations"]) == (0, [9, 9])
    assert died["worker"].summary["virtual_time_s"] == pytest.approx(0.86 + 0.2 + 0.4)
    assert died["server"].summary["virtual_time_s"] == pytest.approx(1.26 + 0.3)
    assert [died[name].summary["restarts"] for name in died] == [1, 1, 2]


@pytest.mark.parametrize(
    "sync",
    [
        {"kind": "asp"},
        {"kind": "cutoff", "warmup": 20},  # no iteration is cut off
        {"kind": "cutoff", "model": "mean-5", "warmup": 1},
        {"kind": "cutoff"},
    ],
)
def test_each_script_reads_its_data_once_whatever_dies(sync):
    """A sample counts as seen when its step is done; `seen` would jump, or repeat, otherwise."""
    changes = {"compute": {"kind": "exponential", "mean_s": 0.1}, "sync": sync, **SAVED}
    schedule = crash(0.5, server=1), crash(0.52, worker=0), crash(1.05, worker=1)
    found = failing(*schedule, **changes)
    for rows in logged(found).values():
        assert [row[0] for row in rows] == list(range(1, 10))
        assert [row[-1] for row in rows] == [4 * done for done in range(1, 10)]
    # After the loss of the server all begin again, and so does worker 0.
    assert (found.summary["iterations"], found.summary["restarts"]) == ([9, 9], 2)


@pytest.mark.filterwarnings("ignore:the script of worker-1 took")
def test_the_last_gradient_of_a_script_that_ends_while_a_checkpoint_is_written_is_not_lost():
    """Worker 1 takes 4 steps, the last until 0.4 s, and does not wait for servers.

    They are saved at 0 s, stand still until 0.5 s, and all processes go back to that.
    """
    task = {"kind": "script", "path": str(SCRIPTS / "uneven.py"), "arguments": ["keep"]}
    changes = {"task": task, "sync": {"kind": "ssptable", "staleness": 9}}
    faults = {"schedule": [crash(0.55, server=1)], "recovery": {**RECOVERY, "checkpoint_s": 0.5}}
    found = outpace.simulate(
        {**CONFIG, **changes, "faults": faults, "checkpoint": {"every_updates": 100}}
    )
    assert found.summary["restarts"] == 1
    assert found.summary["iterations"] == [30, 4]
    assert found.summary["gradients_applied"] == 34
    assert [row["done"] for row in found.metrics.to_pylist() if row["worker"] == 1] == [1, 2, 3, 4]


def test_a_script_that_keeps_nothing_begins_anew_and_is_warned_of():
    changes = {"task": PLAIN, "stop": {"iterations": 9}, **SAVED}
    with pytest.warns(
        OutpaceWarning, match="the script of worker-1 begins anew, with the parameters"
    ):
        found = failing(crash(0.55, worker=1), **changes)
    assert (found.summary["iterations"], found.summary["updates_lost"]) == ([9, 9], 0)
    with pytest.warns(OutpaceWarning, match="scripts of worker-0, worker-1 begin anew"):
        found = failing(crash(0.75, server=1), **changes)
    # In iteration 7, of which the checkpoint has the first six, both had computed seven.
    assert (found.summary["iterations"], found.summary["updates_lost"]) == ([9, 9], 2)
    with pytest.warns(OutpaceWarning, match="scripts of worker-0, worker-1 begin anew"):
        found = failing(crash(0.75, server=1), crash(1.42, server=0), **changes)
    # Saved is still what was saved before; at 1.43 s both had computed another one since.
    assert (found.summary["iterations"], found.summary["updates_lost"]) == ([9, 9], 2 + 2)


def test_without_checkpoints_the_others_go_on_without_a_script_that_died():
    found = failing(crash(0.55, worker=1))
    assert (found.summary["iterations"], found.summary["restarts"]) == ([9, 5], 0)
    with pytest.raises(RunError, match=r"server-1 was killed .* set checkpoint"):
        failing(crash(0.55, server=1))


def test_a_script_with_collectives_of_its_own_cannot_lose_a_process(tmp_path):
    arguments = ["asynchronous", str(tmp_path)]  # the second barrier is at 0.2 s
    task = {"kind": "script", "path": str(SCRIPTS / "ddp_vectors.py"), "arguments": arguments}
    with pytest.raises(RunError, match=r"worker-1 was killed .* collectives of their own"):
        failing(crash(0.15, worker=1), task=task, sync={"kind": "asp"})
