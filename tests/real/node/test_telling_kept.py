"""Worker 0 tells what its script keeps when workers join: once, whatever else it is asked for."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from outpace.real.net.checkpoint_messages import (
    MOST_REPORTED,
    CheckpointFailed,
    CheckpointMissed,
    GiveUpCheckpoint,
    ScriptState,
    TakeCheckpoint,
)
from outpace.real.net.clock import RealClock
from outpace.real.net.membership_messages import TellKept
from outpace.real.node.script.keeping import Keeping
from outpace.record.checkpoints.tensors import from_bytes, to_bytes
from outpace.record.checkpoints.trees import packed_tree, tree_of
from outpace.record.totals import Totals
from outpace.support.data_places import DataPlaces
from outpace.support.place import HERE

MODEL, INPUTS = torch.nn.Linear(2, 1), torch.ones(1, 2)


class Worker:
    """Worker 0, whose script keeps `keeps`.

    sent: what it has sent, in short: the number of a checkpoint, 0 for the answer, or "report", the
    iteration, and what the script kept; or a message without a state.
    """

    def __init__(self, *, first: int = 0, reports: bool = False, repeats: int = 0) -> None:
        self.sent: list[Any] = []
        self.iteration, self.is_paused = first, False
        self.keeps: dict[str, Any] = {"a": 1}
        self.process: Any = SimpleNamespace(
            worker=0,
            name="worker-0",
            now=0,
            clock=RealClock(),
            first_iteration=first,
            redivided=None,
            kept=None,
            not_computing=lambda begun, ended: None,
            recorder=SimpleNamespace(totals=Totals()),
            coordinator=SimpleNamespace(send=self._take),
            flush=lambda: None,
        )
        if repeats:
            message = SimpleNamespace(done=first, logs=False, joins=False)
            state = to_bytes(packed_tree({"iteration": first - repeats}))
            self.process.kept = state, message
        self.kept: Any = SimpleNamespace(
            is_complete=True, restore=lambda tree: None, state=lambda: dict(self.keeps)
        )
        self.keeping = Keeping(self.process, self.kept, lambda: self.is_paused, reports=reports)
        self.keeping.restore()
        self.keeping.begins(first)

    def _take(self, message: Any, block: torch.Tensor | None = None) -> None:
        if isinstance(message, ScriptState):
            assert block is not None
            assert message.block.elements == block.numel()
            is_report = not message.number and not message.answers
            kept = tree_of(from_bytes(block))
            assert kept.pop("iteration", message.done) == message.done
            self.sent.append(("report" if is_report else message.number, message.done, kept))
        else:
            self.sent.append(message)

    def ask(self, message: Any) -> None:
        assert self.process.take_checkpoint(message)

    def step(self) -> None:
        """Compute an iteration, perhaps again."""
        MODEL(INPUTS)
        if not self.keeping.repeat():
            self.iteration += 1
            self.keeping.begins(self.iteration)


@pytest.fixture(autouse=True)
def places(monkeypatch):
    monkeypatch.setattr(HERE, "data", DataPlaces())


@pytest.fixture
def make():
    """Return a function that makes a worker, whose script ends with the test."""
    workers = []

    def make(**settings: Any) -> Worker:
        workers.append(Worker(**settings))
        return workers[-1]

    yield make
    for worker in workers:
        worker.step()  # the last hook of one that repeats
        worker.keeping.end()


def test_what_a_script_keeps_is_told_once_at_the_beginning_of_its_next_iteration(make):
    worker = make(first=4)
    worker.ask(TellKept())
    worker.ask(TellKept())  # as it is not told yet
    worker.step()
    assert worker.sent == []
    with torch.no_grad():
        MODEL(INPUTS)  # an evaluation
    worker.is_paused = True
    MODEL(INPUTS)
    worker.is_paused = False
    worker.keeps = {"a": 2}  # by scheduler.step(), say
    worker.step()
    worker.step()
    assert worker.sent == [(0, 5, {"a": 2})]


def test_a_checkpoint_of_a_later_iteration_is_taken_as_well(make):
    worker = make()
    worker.ask(TakeCheckpoint(7, 3))
    worker.ask(TellKept())
    for _ in range(5):
        worker.step()
    assert worker.sent == [(0, 1, {"a": 1}), (7, 3, {"a": 1})]


def test_what_a_script_keeps_is_told_after_a_checkpoint_of_the_same_iteration(make):
    worker = make()
    worker.ask(TellKept())
    worker.ask(TakeCheckpoint(7, None))
    for _ in range(4):
        worker.step()
    assert worker.sent == [(7, 1, {"a": 1}), (0, 2, {"a": 1})]


def test_what_a_script_keeps_is_told_though_a_checkpoint_is_given_up_or_missed(make):
    worker = make()
    worker.ask(TellKept())
    worker.step()  # it begins iteration 1
    worker.ask(TakeCheckpoint(7, 5))
    worker.ask(GiveUpCheckpoint(7))
    worker.ask(TakeCheckpoint(8, 1))
    worker.step()
    assert worker.sent == [CheckpointMissed(8, 1), (0, 1, {"a": 1})]


def test_a_checkpoint_that_is_given_up_is_not_taken(make):
    worker = make()
    worker.ask(TakeCheckpoint(7, None))
    worker.step()
    worker.ask(GiveUpCheckpoint(7))
    worker.step()
    worker.step()
    assert worker.sent == []


def test_a_script_that_repeats_iterations_tells_what_it_keeps_when_it_has(make):
    worker = make(first=5, repeats=2)
    worker.ask(TellKept())
    worker.step()  # iteration 3
    worker.step()  # iteration 4
    assert worker.sent == []
    worker.step()
    worker.step()
    assert worker.sent == [(0, 5, {"a": 1})]


def test_the_answer_is_no_report_though_one_is_due(make):
    worker = make(reports=True)
    worker.step()
    assert worker.sent == [("report", 0, {"a": 1})]
    worker.ask(TellKept())
    worker.step()
    worker.step()
    assert worker.sent[1:] == [(0, 2, {"a": 1})]


def test_a_large_state_is_told_before_the_script_leaves(make):
    """Another thread makes the content of the file."""
    worker = make()
    worker.keeps = {"a": torch.arange(1 << 19)}  # 4 MiB
    worker.ask(TellKept())
    worker.step()
    MODEL(INPUTS)
    worker.keeps["a"] += 1  # the state is a copy
    worker.keeping.end()
    ((number, iteration, kept),) = worker.sent
    assert (number, iteration) == (0, 1)
    assert torch.equal(kept["a"], torch.arange(1 << 19))


def test_a_state_that_is_too_large_for_reports_is_told(make):
    worker = make(reports=True)
    worker.keeps = {"a": torch.zeros(MOST_REPORTED // 2 + 1, dtype=torch.uint8)}
    worker.step()
    worker.ask(TellKept())
    worker.step()
    worker.step()
    worker.step()
    worker.keeping.end()
    assert [(number, iteration) for number, iteration, _ in worker.sent] == [(0, 2)]


def test_a_state_that_cannot_be_sent_is_told_as_a_failure(make):
    worker = make(reports=True)
    worker.keeps = {"lock": threading.Lock()}
    worker.step()
    assert worker.sent == []  # no report
    worker.ask(TellKept())
    worker.step()
    worker.step()
    (failed,) = worker.sent
    assert isinstance(failed, CheckpointFailed)
    assert failed.number == 0
    assert "what the script of worker-0 keeps['lock'] is a _thread.lock" in failed.why
    worker.keeps = {"a": 3}  # it is asked again
    worker.ask(TellKept())
    worker.step()
    worker.step()
    assert worker.sent[1:] == [(0, 4, {"a": 3})]


def test_a_state_that_cannot_be_saved_is_told_as_a_failure_after_that_of_the_checkpoint(make):
    worker = make()
    worker.keeps = {"lock": threading.Lock()}
    worker.ask(TakeCheckpoint(7, None))
    worker.ask(TellKept())
    for _ in range(4):
        worker.step()
    assert [each.number for each in worker.sent] == [7, 0]


def test_a_script_that_keeps_nothing_tells_a_state_from_which_nothing_is_repeated(make):
    worker = make()
    worker.kept.is_complete = False
    states = []
    worker.process.coordinator.send = lambda message, block: states.append((message, block))
    worker.ask(TellKept())
    worker.step()
    worker.step()
    ((message, block),) = states
    assert (message.is_complete, message.answers) == (False, True)
    assert "iteration" not in tree_of(from_bytes(block))
