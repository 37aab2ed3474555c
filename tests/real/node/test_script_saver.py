"""A script with servers is saved; one that replaces a lost script repeats missing iterations."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from outpace.real.net.checkpoint_messages import (
    MOST_REPORTED,
    CheckpointPart,
    NotSaved,
    ScriptState,
    TakeCheckpoint,
)
from outpace.real.net.clock import RealClock
from outpace.real.script.script_saver import ScriptSaver
from outpace.record.checkpoints.tensors import to_bytes
from outpace.record.checkpoints.trees import packed_tree, read_tree
from outpace.record.totals import Totals

MODEL, INPUTS = torch.nn.Linear(2, 1), torch.ones(1, 2)


@pytest.fixture
def keeping():
    """The state is of iteration 3, and the servers have the gradients of iterations 3 and 4."""
    process = SimpleNamespace(
        worker=0,
        name="worker-0",
        now=0,
        clock=RealClock(),
        first_iteration=5,
        redivided=None,
        kept=ScriptState(to_bytes(packed_tree({"iteration": 3})), done=5),
        not_computing=lambda begin, end: None,
    )
    kept = SimpleNamespace(is_complete=True, restore=lambda state: None)
    found = ScriptSaver(process, kept, lambda: False, reports=False)
    found.restore()
    return found


def test_what_a_script_logs_after_the_last_repeated_step_is_of_that_iteration(keeping):
    for _ in range(2):
        assert keeping.is_repeating
        MODEL(INPUTS)
        assert keeping.repeat()
    assert keeping.is_repeating  # a loss that is logged now was computed at other parameters
    with torch.no_grad():
        MODEL(INPUTS)  # an evaluation
    assert keeping.is_repeating
    MODEL(INPUTS)
    assert not keeping.is_repeating
    assert not keeping.repeat()  # the gradient of iteration 5 goes to the servers


def test_a_script_without_a_module_repeats_until_its_next_step(keeping):
    assert keeping.repeat()
    assert keeping.repeat()
    assert keeping.is_repeating
    assert not keeping.repeat()
    assert not keeping.is_repeating


class Worker:
    """A worker whose script keeps a number, and the messages to the coordinator."""

    def __init__(self, *, reports=False) -> None:
        self.worker, self.name, self.now, self.first_iteration = 0, "worker-0", 7, None
        self.clock, self.told = RealClock(), []
        self.coordinator, self.recorder = self, SimpleNamespace(totals=Totals(applied=3))
        self.is_complete, self.size = True, 1
        self.keeping = ScriptSaver(self, self, lambda: False, reports=reports)

    def flush(self) -> None:
        """Do nothing, because there are no rows."""

    def send(self, message) -> None:
        self.told.append(message)

    def state(self):
        return {"seen": torch.full((self.size,), 5.0)}

    def iterate(self, iteration) -> list:
        """Begin an iteration, and its forward pass; return the messages since the last call."""
        self.keeping.begins(iteration)
        MODEL(INPUTS)
        told, self.told = self.told, []
        return told


@pytest.mark.parametrize(("clock", "iteration"), [(None, 0), (0, 0), (2, 2)])
def test_a_script_is_saved_at_the_first_forward_pass_of_the_iteration(tmp_path, clock, iteration):
    worker = Worker()
    assert worker.keeping.take(TakeCheckpoint(1, clock, str(tmp_path)))
    for earlier in range(iteration):
        assert worker.iterate(earlier) == []
    (message,) = worker.iterate(iteration)
    assert isinstance(message, CheckpointPart)
    assert (message.number, message.now, message.totals.applied) == (1, 7, 3)
    assert (message.iteration, message.is_complete, message.kept_at) == (iteration, True, 7)
    (part,) = message.parts
    tree = read_tree(tmp_path / part.file)
    assert (part.file, tree["iteration"]) == ("worker-0.safetensors", iteration)
    assert worker.iterate(iteration + 1) == []


def test_what_a_checkpoint_cannot_keep_is_said(tmp_path):
    worker = Worker()
    worker.state = lambda: {"seen": object()}
    worker.keeping.take(TakeCheckpoint(1, None, str(tmp_path)))
    (message,) = worker.iterate(0)
    assert isinstance(message, NotSaved)
    assert "what the script of worker-0 keeps['seen'] is a builtins.object" in message.why


def test_a_state_is_sent_for_a_process_that_may_take_this_place_unless_it_is_large(tmp_path):
    worker = Worker(reports=True)
    (message,) = worker.iterate(0)
    assert isinstance(message, ScriptState)
    assert message.done == 0
    worker.keeping.take(TakeCheckpoint(1, None, str(tmp_path)))
    assert [type(each) for each in worker.iterate(1)] == [ScriptState, CheckpointPart]
    worker.size = MOST_REPORTED // 8 + 1
    worker.keeping.take(TakeCheckpoint(2, None, str(tmp_path)))
    (tmp_path / "worker-0.safetensors").unlink()
    worker.iterate(2)
    worker.keeping.end()  # another thread has written it
    assert [type(each) for each in worker.told] == [CheckpointPart]
