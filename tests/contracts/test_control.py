"""Policies that differ from server to server, change during the run, or are the user's own."""

from __future__ import annotations

import pytest
from tests.support.runtimes import every_runtime, rows

from outpace.errors import ConfigError, PolicyError, RunError
from outpace.experiment.running import run, simulate
from outpace.sync import Asp, Bsp, Ssp
from outpace.sync.python import PythonStrategy

WORKERS, SERVERS = 3, 2
MINE = """\
from outpace.sync import ASK_AGAIN, Asp, Decision, Policy, Reason, Scale


def together(pull, view, more=0):
    "As BSP: when everybody has pushed this iteration."
    return view.count(pull.iteration) + more >= view.live


def two(view):
    return view.reached >= min(2, view.live)


def soon(view):
    return 0.02 if view.reached else False


def raises(pull, view):
    if pull.iteration == 5:
        raise KeyError("lost")
    return True


def nonsense(pull, view):
    return "yes" if pull.iteration == 5 else True


def nonsense_for_pushes(view):
    return -1.0 if view.clock == 5 else view.reached >= view.live


def past(pull, view):
    return Decision(0, Reason.BEYOND_BOUND, 0)


class Mine(Policy):
    scale = "sum"

    def __init__(self, lead):
        self.lead = lead

    def may_answer(self, pull, view):
        if pull.iteration - view.slowest <= self.lead:
            return True
        return Decision(ASK_AGAIN, Reason.NO_CONDITION, pull.iteration - view.slowest)

    def patience_s(self, view):
        return view.reached >= view.live


class Half:
    def may_answer(self, pull, view):
        return True
"""


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)


def config(**changes):
    """Return the configuration of a run of 1.2 s in which one worker is slower than the others."""
    return {
        "task": {"kind": "timing", "parameters": 1000},
        "workers": WORKERS,
        "servers": SERVERS,
        "compute": {
            "kind": "constant",
            "mean_s": 0.02,
            "slow": [{"workers": [2], "factor": 1.5}],
        },
        "sync": {"kind": "asp"},
        "stop": {"iterations": 40},
        **changes,
    }


def pulls(result, shard, from_s=0.0, until_s=1e9):
    return [
        row
        for row in rows(result, "pull")
        if row["shard"] == shard and from_s * 1e9 <= row["start_ns"] < until_s * 1e9
    ]


def reasons(found):
    return {row["reason"] for row in found}


def answered(found, until_s):
    """Return the pulls with an answer by then. A pull that was sent by then may be judged later."""
    return [row for row in found if row["end_ns"] < until_s * 1e9]


def since(found, **decision):
    """Return the pulls since the first with this decision; a busy server changes policies late."""
    ordered = sorted(found, key=lambda row: row["start_ns"])
    return ordered[next(k for k, row in enumerate(ordered) if decision.items() <= row.items()) :]


def complete(result, *, skips=False):
    """Require a complete run. A worker skips iterations that a server finished without it."""
    assert result.summary["status"] == "complete"
    assert skips or result.summary["iterations"] == [40] * WORKERS
    assert len(rows(result, "pull")) == sum(result.summary["iterations"]) * SERVERS
    assert all(row["end_ns"] is not None for row in rows(result, "pull")), "none was forgotten"
    return result


@every_runtime
def test_each_server_follows_its_own_policy_and_changes_at_its_time(run):
    """Also, no pull that came after a change is answered beyond the new bound."""
    changes = [
        {"at_s": 0.3, "sync": {"kind": "bsp"}, "keys": "server-1"},
        {"at_s": 0.6, "sync": [{"kind": "bsp"}, {"kind": "asp"}]},
    ]
    sync = [{"kind": "ssp", "staleness": 2}, {"kind": "asp"}]
    result = complete(run(config(sync=sync, sync_changes=changes)))
    early = answered(pulls(result, 0), 0.6)
    assert {row["bound"] for row in early} == {2}
    assert all(row["clock"] > row["iteration"] - 2 for row in early)
    assert reasons(answered(pulls(result, 1), 0.3)) == {"unbounded"}
    between = answered(pulls(result, 1, 0.3), 0.6)
    held_back = {"reason": "beyond-bound", "bound": 0}
    for held in (since(between, **held_back), since(pulls(result, 0, 0.6), **held_back)):
        assert all(row["bound"] == 0 and row["clock"] > row["iteration"] for row in held)
    assert reasons(since(pulls(result, 1, 0.6), reason="unbounded")) == {"unbounded"}
    policies = [server["policy"]["kind"] for server in result.summary["servers"]]
    assert policies == ["ssp", "asp"]


def test_conditions_and_policies_of_the_users_decide():
    conditions = [
        {"pull": "mine.py:together", "keys": "server-0"},
        {"push": "mine.py:two", "keys": "server-1"},
    ]
    sync = [{"kind": "asp"}, {"kind": "python", "target": "mine.py:Mine", "arguments": {"lead": 1}}]
    result = complete(simulate(config(sync=sync, conditions=conditions)))
    arrived = {
        (row["shard"], row["worker"], row["iteration"]): row["start_ns"]
        for row in rows(result, "push")
    }
    for row in pulls(result, 0):
        latest = max(arrived[0, worker, row["iteration"]] for worker in range(WORKERS))
        assert row["end_ns"] >= latest, "as BSP"
        assert row["reason"] == ("condition" if row["released_by"] is None else "no-condition")
    assert len(reasons(pulls(result, 0))) == 2
    # The push condition goes before the class's own; its pull condition stays.
    for row in pulls(result, 1):
        last = (
            [arrived[1, worker, row["iteration"] - 1] for worker in range(WORKERS)]
            if (row["iteration"])
            else []
        )
        assert all(row["end_ns"] >= time for time in last), "no lead above 1"
    first_two = {
        i: sorted(arrived[1, worker, i] for worker in range(WORKERS))[1] for i in range(40)
    }
    ahead = [row for row in pulls(result, 1) if row["clock"] > row["iteration"]]
    assert all(row["end_ns"] >= first_two[row["iteration"]] for row in ahead)


def by_code(control):
    """Give orders by a user's code at 0.3 s and 0.6 s, and note the orders that were refused."""
    refused = []

    def attempt(action, *arguments):
        with pytest.raises(ConfigError) as error:
            action(*arguments)
        refused.append(str(error.value))

    def first():
        control.set_policy("server-0", Bsp())
        control.set_pull_condition("server-1", "mine.py:together")
        attempt(control.set_policy, "srever-0", Bsp())
        attempt(control.set_policy, "*", PythonStrategy("mine.py:Half"))

    def second():
        control.set_policy("*", Ssp(2))
        control.set_pull_condition("*", None)

    control.at(0.3, first)
    control.at(0.6, second)
    attempt(control.at, -1.0, second)
    return refused


@every_runtime
def test_code_changes_policies_and_conditions_while_the_run_goes_on(run):
    notes, times = [], []

    def control(live):
        assert live.servers == ["server-0", "server-1"]
        notes.append(by_code(live))
        live.at(0.5, lambda: times.append((live.now_s, sum(live.summary()["iterations"]))))

    conditions = [{"pull": "mine.py:together", "active": False}]
    result = complete(run(config(conditions=conditions), control=control))
    for shard in range(SERVERS):
        assert reasons(pulls(result, shard, until_s=0.3)) == {"unbounded"}
        # On a busy machine the fast workers may wait for the slow one in all this time.
        held = [row for row in pulls(result, shard, 0.3, 0.6) if row["end_ns"] >= 0.4e9]
        assert len(reasons(held)) == 2
        assert reasons(held) <= {"beyond-bound", "within-bound", "no-condition", "condition"}
        by_then = [row for row in pulls(result, shard, 0.4, 0.6) if row["end_ns"] < 0.6e9]
        assert all(row["clock"] > row["iteration"] for row in by_then), (
            "BSP, by its own name and by the condition's"
        )
        # On a busy machine the order of 0.6 s arrives later: then what begins after its first
        # effect follows it.
        changed_ns = min(row["end_ns"] for row in pulls(result, shard, 0.6) if row["bound"] == 2)
        late = pulls(result, shard, max(0.7, changed_ns / 1e9))
        assert {row["bound"] for row in late} == {2}
        assert all(row["clock"] > row["iteration"] - 2 for row in late)
    (refused,) = notes
    negative, keys, half = refused
    assert "from 0 to 1e9" in negative
    assert "'srever-0' matches no server" in keys
    assert "server-0" in keys
    assert "mine.py:Half" in half
    ((now_s, iterations),) = times
    assert 0.5 <= now_s < 1.0
    assert 0 < iterations < 40 * WORKERS


def test_a_real_server_uses_no_function_that_its_configuration_does_not_name():
    refused = []

    def control(live):
        for condition in ("mine.py:raises", lambda pull, view: True):
            with pytest.raises(ConfigError) as error:
                live.set_pull_condition("*", condition)
            refused.append(str(error.value))
        with pytest.raises(ConfigError) as error:
            live.set_push_condition("*", "mine.py:together")  # named, but for pulls
        refused.append(str(error.value))

    conditions = [{"pull": "mine.py:together", "active": False}]
    complete(run(config(conditions=conditions, stop={"iterations": 40}), control=control))
    assert all("must be named in the configuration" in text for text in refused)
    assert "mine.py:together" in refused[0]


@pytest.mark.parametrize(
    ("conditions", "words"),
    [
        ({"pull": "mine.py:raises"}, ["mine.py:raises", "KeyError", "lost", "worker", "iter"]),
        ({"pull": "mine.py:nonsense"}, ["mine.py:nonsense", "'yes'", "true or false", "worker"]),
        ({"push": "mine.py:nonsense_for_pushes"}, ["mine.py:nonsense_for_pushes", "-1.0", "5"]),
    ],
)
def test_a_condition_that_fails_ends_the_run_and_is_named(conditions, words):
    with pytest.raises(PolicyError) as error:
        simulate(config(conditions=[{"keys": "server-1", **conditions}]))
    message = str(error.value)
    assert "\n" not in message
    assert "server 1" in message
    assert all(word in message for word in words), message
    assert error.value.exit_code == 1
    if "pull" in conditions:
        assert "pull of iteration 5" in message


def test_a_condition_that_fails_in_a_real_run_is_named():
    with pytest.raises(RunError) as error:
        run(config(conditions=[{"pull": "mine.py:raises", "keys": "server-1"}]))
    assert error.value.exit_code == 1
    assert "mine.py:raises of server 1" in str(error.value)
    assert "pull of iteration 5" in str(error.value)


def test_changes_in_virtual_time_are_exact():
    """A pull that waits is judged exactly at the time of the change."""
    slow = {"kind": "constant", "mean_s": 1.0, "slow": [{"workers": [2], "factor": 100.0}]}
    result = simulate(
        config(
            compute=slow,
            sync={"kind": "ssp", "staleness": 2},
            sync_changes=[
                {"at_s": 10.5, "sync": {"kind": "ssp", "staleness": 4}, "keys": "server-0"},
                {"at_s": 20.25, "sync": {"kind": "asp"}},
            ],
            stop={"iterations": 8},
        )
    )
    ended = {
        (r["shard"], r["worker"], r["iteration"]): r["end_ns"] / 1e9 for r in rows(result, "pull")
    }
    for worker in (0, 1):
        assert ended[0, worker, 2] == 10.5
        assert ended[1, worker, 2] == 20.25  # so the worker continues, and computes 3 in 1 s
        assert [ended[shard, worker, 3] for shard in range(SERVERS)] == [21.25, 21.25]
        assert ended[0, worker, 7] == 25.25


def test_a_change_is_the_same_from_a_file_and_from_code():
    def control(live):
        live.at(0.31, lambda: live.set_policy("*", Ssp(1)))
        live.at(0.62, lambda: live.set_policy("server-1", Asp()))

    changes = [
        {"at_s": 0.31, "sync": {"kind": "ssp", "staleness": 1}},
        {"at_s": 0.62, "sync": {"kind": "asp"}, "keys": "server-1"},
    ]
    by_file = simulate(config(sync={"kind": "bsp"}, sync_changes=changes))
    code = simulate(config(sync={"kind": "bsp"}), control=control)
    assert by_file.summary["trace_digest"] == code.summary["trace_digest"]
    assert (
        by_file.summary["trace_digest"]
        != simulate(config(sync={"kind": "bsp"})).summary["trace_digest"]
    )


def test_conditions_stay_in_force_when_the_policy_changes():
    conditions = [{"pull": "mine.py:together", "keys": "server-0"}]
    changes = [{"at_s": 0.3, "sync": {"kind": "ssp", "staleness": 1}}]
    result = complete(simulate(config(conditions=conditions, sync_changes=changes)))
    assert reasons(pulls(result, 0, 0.35)) == {"condition", "no-condition"}
    assert {row["bound"] for row in pulls(result, 1, 0.35)} == {1}


def test_a_change_to_another_precision_of_the_messages_is_refused():
    refused = []

    def control(live):
        for policy in (Asp(), Asp(wire="bf16")):
            try:
                live.set_policy("*", policy)
            except ConfigError as error:
                refused.append(str(error))

    simulate(config(sync={"kind": "bsp", "wire": "bf16"}), control=control)
    (words,) = refused
    assert words.startswith("sync.wire=full, but the run has bf16: workers send to all servers")
