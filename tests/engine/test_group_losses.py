"""What follows the loss of a process, and when all processes begin again."""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from outpace.config.experiment import Experiment
from outpace.config.reading import experiment_from
from outpace.engine.losses import MOST_LOSSES, GroupLosses, follows, left_after
from outpace.errors import RunError

LOSS = RunError("server-0 was killed")


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


def losses(*, can_restart: bool = True, **changes: Any) -> GroupLosses:
    return GroupLosses(run(**changes), can_restart=can_restart)


@pytest.mark.parametrize(("sync", "is_server"), [("bsp", True), ("bsp", False), ("ssgd", False)])
@pytest.mark.parametrize("on_loss", ["restart", "continue", "stop"])
@pytest.mark.parametrize("facts", list(itertools.product((False, True), repeat=3)))
def test_only_a_worker_of_a_run_with_servers_that_trains_is_replaced_alone(
    sync, is_server, on_loss, facts
):
    has_begun, has_exited, can_restart = facts
    experiment = run(sync, **{"on_server_loss" if is_server else "on_worker_loss": on_loss})
    found = follows(
        experiment,
        is_server=is_server,
        has_begun=has_begun,
        has_exited=has_exited,
        can_restart=can_restart,
    )
    assert (found == "anew") == (
        can_restart and not has_begun and not has_exited and on_loss != "stop"
    )
    if found != "anew":
        is_alone = sync == "bsp" and not is_server
        assert (found == "alone") == (is_alone and on_loss != "stop")
        assert not (found == "all" and is_alone)
        assert not (found == "end" and is_server)
        if on_loss == "stop" and not is_server:
            assert found == "end"


@pytest.mark.parametrize("on_loss", ["restart", "continue"])
@pytest.mark.parametrize("workers", range(4))
@pytest.mark.parametrize("servers", range(3))
def test_all_that_are_left_begin_again_if_there_are_enough(on_loss, workers, servers):
    for sync, least in (("bsp", 1), ("ssgd", 2)):
        before = run(sync, on_worker_loss=on_loss)
        if sync == "bsp":
            before = replace(before, on_server_loss=on_loss)
        gone = (workers, servers if sync == "bsp" else 0) if on_loss == "continue" else (0, 0)
        left = before.workers - gone[0], before.servers - gone[1]
        if left[0] >= least and left[1] >= 1:
            after = left_after(before, LOSS, workers, servers)
            assert (after.workers, after.servers) == left
        else:
            with pytest.raises(RunError, match="killed; the run needs at least"):
                left_after(before, LOSS, workers, servers)


def test_a_run_begins_again_from_its_last_checkpoint():
    rules = losses()
    for checkpoint in range(1, 3 * MOST_LOSSES):
        rules.require_way_on(LOSS, checkpoint)


def test_a_run_that_is_lost_five_times_without_a_new_checkpoint_ends():
    rules = losses()
    for _ in range(MOST_LOSSES - 1):
        rules.require_way_on(LOSS, 1)
    for _ in range(MOST_LOSSES - 1):  # a new checkpoint begins the count anew
        rules.require_way_on(LOSS, 2)
    with pytest.raises(RunError, match="killed: the 5th loss since checkpoint 2; the run ends"):
        rules.require_way_on(LOSS, 2)


def test_without_a_checkpoint_the_error_says_what_to_set():
    with pytest.raises(RunError, match="killed; set checkpoint, for example"):
        losses(checkpoint=None).require_way_on(LOSS, 0)
    with pytest.raises(RunError, match=r"^server-0 was killed$"):
        losses().require_way_on(LOSS, 0)


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (losses(on_server_loss="stop"), r"^server-0 was killed$"),
        (losses(can_restart=False), "were started elsewhere, .* outpace serve --resume: "),
    ],
)
def test_a_run_that_is_not_to_begin_again_ends_with_the_loss(rules, words):
    with pytest.raises(RunError, match=words):
        rules.require_way_on(LOSS, 1)
