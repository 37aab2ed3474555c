"""What follows the loss of a process, and when all processes begin again."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from outpace.config.experiment import Experiment
from outpace.config.reading import experiment_from
from outpace.engine.losses import rules_about_losses
from outpace.sync.membership import (
    MOST_LOSSES,
    BeginAgain,
    EndRun,
    Loss,
    Membership,
    Order,
    Removed,
    Replace,
)
from outpace.sync.messages import server_name, worker_name

KILLED = Loss("server-0", "was killed")


def run(sync: str = "bsp", **changes: Any) -> Experiment:
    data = {
        "task": {"kind": "timing", "parameters": 10},
        "workers": 3,
        "servers": 2 if sync == "bsp" else 1,
        "sync": {"kind": sync},
        "stop": {"iterations": 1},
        "checkpoint": {"every_s": 30},
    }
    return replace(experiment_from(data, "the test"), **changes)


def begun(
    sync: str = "bsp", *, has_begun: bool = True, can_restart: bool = True, **changes: Any
) -> Membership:
    """Return the processes of a run."""
    experiment = run(sync, **changes)
    rules = rules_about_losses(experiment, 120.0, can_begin_again=can_restart)
    members = Membership(rules)
    members.begin(experiment.workers, list(map(server_name, range(experiment.servers_in_run))))
    if has_begun:
        members.started()
    return members


def after(members: Membership, *losses: Loss, checkpoint: int = 1) -> Order:
    """Return the first order after these losses."""
    return members.lost(losses, 0, checkpoint=checkpoint)[0]


@pytest.mark.parametrize(("sync", "is_server"), [("bsp", True), ("bsp", False), ("ssgd", False)])
@pytest.mark.parametrize("on_loss", ["restart", "continue", "stop"])
@pytest.mark.parametrize("facts", list(itertools.product((False, True), repeat=3)))
def test_only_a_worker_of_a_run_with_servers_that_trains_is_replaced_alone(
    sync, is_server, on_loss, facts
):
    has_begun, has_exited, can_restart = facts
    changes = {"on_server_loss" if is_server else "on_worker_loss": on_loss}
    members = begun(sync, has_begun=has_begun, can_restart=can_restart, **changes)
    lost = replace(KILLED, name="server-1" if is_server else "worker-1", has_exited=has_exited)
    order = after(members, lost)
    if can_restart and not has_begun and not has_exited and on_loss != "stop":
        assert order == BeginAgain(str(lost), [lost.name])
    elif on_loss == "stop":
        assert isinstance(order, EndRun)
        assert bool(order.lost) == is_server
    elif is_server or (sync == "ssgd" and not (has_exited and on_loss == "restart")):
        without = [lost.name] if on_loss == "continue" else []
        expected = BeginAgain(str(lost), [lost.name], 1, without)
        assert order == expected if can_restart else isinstance(order, EndRun)
    elif sync == "ssgd" or not has_begun or (has_exited and on_loss == "restart"):
        assert order == EndRun(str(lost))
    else:
        assert isinstance(order, Replace)


@pytest.mark.parametrize("on_loss", ["restart", "continue"])
@pytest.mark.parametrize("workers", range(4))
@pytest.mark.parametrize("servers", range(3))
def test_all_that_are_left_begin_again_if_there_are_enough(on_loss, workers, servers):
    for sync, least in (("bsp", 1), ("ssgd", 2)):
        servers = servers if sync == "bsp" else 0
        if not (servers or (workers and sync == "ssgd")):
            continue
        members = begun(sync, on_worker_loss=on_loss)
        if sync == "bsp":
            members = begun(sync, on_worker_loss=on_loss, on_server_loss=on_loss)
        names = [*map(server_name, range(servers)), *map(worker_name, range(workers))]
        order = after(members, *(Loss(name, "was killed") for name in names))
        without = names if on_loss == "continue" else []
        gone = sum(name.startswith("worker") for name in without), len(without) and servers
        if 3 - gone[0] >= least and (sync == "ssgd" or 2 - gone[1] >= 1):
            assert isinstance(order, BeginAgain)
            assert sorted(order.without) == sorted(without)
        else:
            assert isinstance(order, EndRun)
            assert "killed; the run needs at least" in order.reason


def test_a_worker_that_left_before_does_not_begin_again_with_the_others():
    members = begun(on_worker_loss="continue")
    assert isinstance(after(members, Loss("worker-1", "was killed")), Replace)
    assert after(members, KILLED) == BeginAgain(str(KILLED), ["server-0"], 1, ["worker-1"])


def test_a_run_does_not_continue_without_workers_that_are_all_lost_at_once():
    members = begun(on_worker_loss="continue")
    losses = [Loss(worker_name(worker), "was killed") for worker in range(3)]
    assert after(members, *losses) == EndRun("worker-0 was killed")
    assert isinstance(after(members, *losses[1:]), Replace)


def test_a_run_begins_again_from_its_last_checkpoint():
    members = begun()
    for checkpoint in range(1, 3 * MOST_LOSSES):
        order = after(members, KILLED, checkpoint=checkpoint)
        assert order == BeginAgain(str(KILLED), ["server-0"], checkpoint, [])


def test_a_run_that_is_lost_five_times_without_a_new_checkpoint_ends():
    members = begun()
    for _ in range(MOST_LOSSES - 1):
        assert isinstance(after(members, KILLED, checkpoint=1), BeginAgain)
    for _ in range(MOST_LOSSES - 1):  # a new checkpoint begins the count anew
        assert isinstance(after(members, KILLED, checkpoint=2), BeginAgain)
    reason = "server-0 was killed: the 5th loss since checkpoint 2; the run ends"
    assert after(members, KILLED, checkpoint=2) == EndRun(reason, ["server-0"])


def test_a_run_that_is_lost_three_times_before_its_training_ends():
    members = begun(has_begun=False)
    for _ in range(2):
        assert after(members, KILLED) == BeginAgain(str(KILLED), ["server-0"])
    order = after(members, KILLED)
    assert isinstance(order, EndRun)
    assert "killed: the 3rd time before the training began; look at the output" in order.reason
    members.started()  # the count begins anew
    members.begin(3, ["server-0", "server-1"])
    assert isinstance(after(members, KILLED), BeginAgain)


def test_without_a_checkpoint_the_error_says_what_to_set():
    order = after(begun(checkpoint=None), KILLED, checkpoint=0)
    assert isinstance(order, EndRun)
    assert order.reason.startswith("server-0 was killed; set checkpoint, for example")
    assert after(begun(), KILLED, checkpoint=0) == EndRun(str(KILLED), ["server-0"])


@pytest.mark.parametrize(
    ("members", "words"),
    [
        (begun(on_server_loss="stop"), ""),
        (
            begun(can_restart=False),
            "; its workers were started elsewhere, so start them again with outpace serve "
            "--resume: it continues from checkpoint 1",
        ),
    ],
)
def test_a_run_that_is_not_to_begin_again_ends_with_the_loss(members, words):
    assert after(members, KILLED) == EndRun(f"server-0 was killed{words}", ["server-0"])


def test_without_servers_a_worker_that_has_trained_is_missed_by_no_one():
    members = begun("ssgd")
    assert isinstance(after(members, Loss("worker-0", "was killed")), BeginAgain)
    members.has_trained(0)
    assert members.lost([Loss("worker-0", "was killed")], 0, checkpoint=1) == [Removed(0, 0)]
    (order,) = members.lost([Loss("worker-1", "was killed")], 0, checkpoint=1, is_ending=True)
    assert order == Removed(1, 0)


def test_a_worker_that_is_lost_when_the_run_is_about_to_end_is_not_replaced():
    members = begun()
    assert members.lost([Loss("worker-0", "was killed")], 0, is_ending=True) == []
    assert members.has_left(0)
