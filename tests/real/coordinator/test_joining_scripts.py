"""Workers of scripts join a run with what the script of worker 0 keeps, and end with the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch
from tests.real.coordinator.test_losses_while_joining import Run
from tests.support.paths import SCRIPTS

from outpace.errors import ConfigError
from outpace.real.net.block_frames import head_of
from outpace.real.net.checkpoint_messages import CheckpointFailed, ScriptState
from outpace.real.net.membership_messages import (
    EndsTraining,
    LeaveRun,
    ReplaceWorker,
    RunHasWorkers,
    TellKept,
    WorkerReplaced,
)
from outpace.real.net.messages import Go, JoinRun, Plan, Ready, TrainingDone
from outpace.record.totals import Totals

KEPT = torch.arange(7, dtype=torch.uint8)
JOIN = JoinRun("", 9, layers=[4])


def script_run() -> Run:
    return Run(script=str(SCRIPTS / "elastic.py"))


def sent(run: Run, kind: type[Any]) -> list[tuple[str, Any]]:
    return [(name, message) for name, message in run.sent if isinstance(message, kind)]


def take_kept(run: Run) -> None:
    """Worker 0 tells what its script keeps at the beginning of iteration 8."""
    state = ScriptState(0, 0, Totals(), is_complete=True, block=head_of(KEPT), done=8)
    run.reports.takes_kept(state, KEPT)


def join(run: Run, workers: int = 4) -> None:
    """Have the run go on with another worker from iteration 9 on."""
    run.scaling.scale(workers, run.tell)
    assert run.replacements.take("worker-3", JOIN)
    take_kept(run)
    for server, order in sent(run, ReplaceWorker):
        answer = WorkerReplaced(order.worker, order.generation, -1, 9)
        assert run.replacements.take(server, answer)
    assert run.replacements.take("worker-3", Ready())
    assert [is_done for is_done, _ in run.told] == [True]


def test_worker_0_is_asked_when_all_processes_are_there_and_servers_hear_of_them_after_that():
    run = script_run()
    run.scaling.scale(5, run.tell)
    assert run.replacements.take("worker-4", JOIN)
    assert sent(run, TellKept) == []
    assert run.replacements.take("worker-3", JOIN)
    assert sent(run, TellKept) == [("worker-0", TellKept())]
    assert sent(run, RunHasWorkers) == []
    take_kept(run)
    assert [name for name, _ in sent(run, RunHasWorkers)] == run.servers
    assert run.reports.takes_kept is None


def test_a_script_begins_with_the_state_of_worker_0_and_the_iteration_of_the_servers():
    run = script_run()
    join(run)
    ((name, plan),) = sent(run, Plan)
    assert (name, plan.late, plan.first[3], plan.kept) == ("worker-3", True, 9, [0, 0, 0, 7])
    ((name, state),) = sent(run, ScriptState)
    assert (name, state.done, state.joins, state.block) == ("worker-3", 9, True, head_of(KEPT))


def test_the_number_stays_if_what_the_script_keeps_cannot_be_sent():
    run = script_run()
    run.scaling.scale(4, run.tell)
    assert run.replacements.take("worker-3", JOIN)
    run.reports.takes_kept(CheckpointFailed(0, "a lock cannot be saved"), None)
    why = "what the script of worker-0 keeps cannot be handed on: a lock cannot be saved"
    assert run.told == [(False, f"the number of workers stays 3: {why}")]
    assert ("kill", "worker-3") in run.did
    assert run.scaling.scale(4) == "worker-3 will join"


def test_a_script_that_gives_attach_other_objects_does_not_join():
    run = script_run()
    run.scaling.scale(4, run.tell)
    assert run.replacements.take("worker-3", msgspec.structs.replace(JOIN, kept=["ema"]))
    ((is_done, text),) = run.told
    assert not is_done
    assert text.endswith(
        "the script of worker-3 gives outpace.attach other objects than worker-0's"
    )


@pytest.mark.parametrize(
    ("happens", "why"),
    [
        (
            lambda run: run.go_on("worker-0"),
            "worker-0, with whose state the script was to begin, was lost",
        ),
        (
            lambda run: run.replacements.take("worker-1", TrainingDone(5)),
            "the run is about to end",
        ),
    ],
    ids=["lost", "at its end"],
)
def test_the_number_stays_if_a_worker_is_lost_or_ends_before_worker_0_has_answered(
    happens: Callable[[Run], None], why: str
) -> None:
    run = script_run()
    run.scaling.scale(4, run.tell)
    assert run.replacements.take("worker-3", JOIN)
    happens(run)
    assert run.told == [(False, f"the number of workers stays 3: {why}")]
    assert run.reports.takes_kept is None


def test_a_worker_that_has_joined_is_told_to_leave_when_those_of_the_start_are_at_their_end():
    run = script_run()
    join(run)
    assert run.replacements.take("worker-0", EndsTraining())
    run.replacements.take("worker-1", TrainingDone(20, ended=True))
    assert sent(run, LeaveRun) == []
    run.replacements.take("worker-2", TrainingDone(20, ended=True))
    assert sent(run, LeaveRun) == [("worker-3", LeaveRun(0))]


def test_a_process_that_takes_the_place_of_one_that_was_told_to_leave_is_told_again():
    """All those of the start have ended, so nothing else would end the new one."""
    run = script_run()
    join(run)
    for worker in ("worker-0", "worker-1", "worker-2"):
        run.replacements.take(worker, TrainingDone(20, ended=True))
    assert sent(run, LeaveRun) == [("worker-3", LeaveRun(0))]
    run.go_on("worker-3")
    run.confirms(3, clock=20)
    assert run.did[-1] == ("start", 3)
    run.joins(3)
    run.sent.clear()
    assert run.replacements.take("worker-3", Ready())
    assert [message for name, message in run.sent if name == "worker-3"] == [
        Go(0, ""),
        LeaveRun(0),
    ]


def test_a_worker_of_the_start_that_is_replaced_ends_by_itself():
    run = script_run()
    join(run)
    for worker in ("worker-1", "worker-2"):
        run.replacements.take(worker, TrainingDone(20, ended=True))
    run.go_on("worker-0")
    run.confirms(0, clock=20)
    run.joins(0)
    assert run.replacements.take("worker-0", Ready())
    assert sent(run, LeaveRun) == []


def test_the_run_of_a_script_with_a_process_group_keeps_its_workers_and_servers():
    run = script_run()
    first = run.reports.joined["worker-0"]
    run.reports.joined["worker-0"] = msgspec.structs.replace(first, collects=True)
    for scale in (run.scaling.scale, run.moving.scale):
        with pytest.raises(ConfigError, match="has called init_process_group"):
            scale(4)
