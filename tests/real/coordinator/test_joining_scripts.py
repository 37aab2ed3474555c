"""Workers of scripts join a run with what the script of worker 0 keeps, and end with the others."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch
from tests.real.coordinator.test_losses_while_joining import KILLED, Run
from tests.support.paths import SCRIPTS

from outpace.errors import ConfigError
from outpace.real.net.block_frames import head_of
from outpace.real.net.checkpoint_messages import MOST_REPORTED, CheckpointFailed, ScriptState
from outpace.real.net.membership_messages import (
    EndsTraining,
    LeaveRun,
    ReplaceWorker,
    RunHasWorkers,
    TellKept,
    WorkerReplaced,
)
from outpace.real.net.messages import BlockHead, Go, JoinRun, Plan, Ready, TrainingDone
from outpace.record.totals import Totals

KEPT = torch.arange(7, dtype=torch.uint8)
KEPT_AT_8 = ScriptState(0, 0, Totals(), is_complete=True, block=head_of(KEPT), done=8, answers=True)
JOIN = JoinRun("", 9, layers=[4])
LARGE = MOST_REPORTED + 1
LOST = "worker-0, with whose state the script was to begin, was lost"


def script_run() -> Run:
    return Run(script=str(SCRIPTS / "elastic.py"))


def sent(run: Run, kind: type[Any]) -> list[tuple[str, Any]]:
    return [(name, message) for name, message in run.sent if isinstance(message, kind)]


def take_kept(run: Run) -> None:
    """Worker 0 tells what its script keeps at the beginning of iteration 8."""
    assert run.reports.expected("worker-0", KEPT_AT_8) == ("uint8", 7)
    run.reports.take("worker-0", KEPT_AT_8, KEPT)


def restarted(run: Run, name: str, has: int = 3) -> None:
    """Another process takes the place of this lost worker, of which the servers have iteration 3.

    has: the iteration; -1: none.
    """
    for server, order in sent(run, ReplaceWorker):
        answer = WorkerReplaced(order.worker, order.generation, has, 12)
        assert run.replacements.take(server, answer)
    assert run.did[-1] == ("start", order.worker)
    run.replacements.take(name, JOIN)
    assert run.replacements.take(name, Ready())


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
    # It was not asked again, so it is not to send more.
    assert run.reports.expected("worker-0", KEPT_AT_8) is None


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
    run.reports.take("worker-0", CheckpointFailed(0, "a lock cannot be saved"), None)
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


def asked(run: Run) -> Run:
    """Worker 3 is to join, and worker 0 has been asked for what its script keeps."""
    run.scaling.scale(4, run.tell)
    assert run.replacements.take("worker-3", JOIN)
    assert sent(run, TellKept) == [("worker-0", TellKept())]
    return run


def why_not(run: Run) -> str:
    """Return why the number of workers has stayed."""
    ((is_done, text),) = run.told
    assert not is_done
    return text.removeprefix("the number of workers stays 3: ")


@pytest.mark.parametrize(
    ("answer", "block"),
    [
        (
            msgspec.structs.replace(KEPT_AT_8, block=BlockHead("uint8", LARGE)),
            torch.zeros(LARGE, dtype=torch.uint8),
        ),
        (CheckpointFailed(0, "a lock cannot be saved"), None),
    ],
    ids=["state", "failure"],
)
def test_worker_0_may_still_answer_when_the_worker_that_was_to_join_is_lost(answer, block) -> None:
    run = asked(script_run())
    run.go_on("worker-3")
    assert why_not(run) == f"worker-3 {KILLED}"
    if block is not None:
        assert run.reports.expected("worker-0", answer) == ("uint8", LARGE)
    run.reports.take("worker-0", answer, block)
    assert run.refused == []
    assert len(run.told) == 1
    assert sent(run, Plan) == sent(run, ScriptState) == []


def test_worker_0_may_still_answer_when_the_run_is_about_to_end():
    run = asked(script_run())
    run.replacements.take("worker-1", TrainingDone(5))
    assert why_not(run) == "the run is about to end"
    take_kept(run)
    assert run.refused == []


def test_an_answer_that_is_still_due_is_for_the_worker_that_joins_next():
    run = asked(script_run())
    run.go_on("worker-3")
    run.scaling.scale(4)
    assert run.replacements.take("worker-3", JOIN)
    assert len(sent(run, TellKept)) == 1
    take_kept(run)
    assert [name for name, _ in sent(run, RunHasWorkers)] == run.servers


def test_the_number_stays_if_worker_0_is_lost_before_it_answers_and_its_next_process_is_asked():
    run = asked(script_run())
    run.go_on("worker-0")
    assert why_not(run) == LOST
    restarted(run, "worker-0")
    run.scaling.scale(4)
    assert run.replacements.take("worker-3", JOIN)
    assert len(sent(run, TellKept)) == 2


def test_the_number_stays_if_worker_0_is_coming_back_when_it_would_be_asked():
    run = script_run()
    run.scaling.scale(4, run.tell)
    run.go_on("worker-0")
    assert run.replacements.take("worker-3", JOIN)
    assert sent(run, TellKept) == []
    assert why_not(run) == LOST


def test_no_script_can_join_when_worker_0_was_lost_for_good():
    run = Run(on_worker_loss="continue", script=str(SCRIPTS / "elastic.py"))
    run.go_on("worker-0")
    for server in run.servers:
        assert run.replacements.take(server, WorkerReplaced(0, 1, 3, 4))
    with pytest.raises(ConfigError, match="worker-0, with whose state a script that joins begins"):
        run.scaling.scale(4)
    assert run.scaling.scale(2) == "worker-2 will leave"


def test_a_state_that_was_not_asked_for_is_not_the_answer():
    run = asked(script_run())
    before = msgspec.structs.replace(KEPT_AT_8, answers=False)
    assert run.reports.expected("worker-0", before) is None  # a run without checkpoints has none
    assert run.reports.expected("worker-1", KEPT_AT_8) is None


def test_a_worker_that_joined_and_is_lost_begins_with_the_state_of_worker_0_until_it_has_sent_one():
    run = script_run()
    run.kept.sent(0, KEPT, 8)
    join(run)
    run.sent.clear()
    run.go_on("worker-3")
    restarted(run, "worker-3", has=-1)
    ((name, plan),) = sent(run, Plan)
    assert (name, plan.first[3], plan.kept) == ("worker-3", 12, [0, 0, 0, 7])
    ((name, state),) = sent(run, ScriptState)
    assert (name, state.done, state.joins, state.block) == ("worker-3", 12, True, head_of(KEPT))
    run.kept.sent(3, KEPT[:5], 12)
    run.sent.clear()
    run.go_on("worker-3")
    restarted(run, "worker-3", has=14)
    ((name, state),) = sent(run, ScriptState)
    assert (name, state.done, state.joins) == ("worker-3", 15, False)
    assert state.block.elements == 5


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
