"""Evaluations beside the coordinator's loop."""

from __future__ import annotations

import threading

import pytest
import torch

from outpace.errors import RunError
from outpace.real.coordinator.evaluation.evaluations import Evaluations
from outpace.real.net.clock import RealClock


@pytest.fixture
def clock():
    return RealClock()


def turn(clock, until):
    """Look at what there is, as the kernel does, until that holds."""
    while not until():
        clock(None)


def test_the_loop_goes_on_meanwhile_and_is_told_in_order(clock):
    may_go_on, told = threading.Event(), []

    def evaluate(blocks):
        may_go_on.wait()
        return sum(blocks)

    evaluations = Evaluations(clock, evaluate)
    evaluations.begin([1, 2], told.append)
    evaluations.begin([3], told.append)
    clock(clock.now)  # nothing to be told, and no waiting for it
    assert told == []
    may_go_on.set()
    turn(clock, lambda: len(told) == 2)
    assert told == [3, 3]
    evaluations.close()


def test_it_is_told_in_the_thread_of_the_clock(clock):
    threads = []
    evaluations = Evaluations(clock, lambda blocks: threads.append(threading.get_ident()))
    evaluations.begin([], lambda _: threads.append(threading.get_ident()))
    evaluations.settle()
    evaluations.close()
    assert threads[0] != threads[1] == threading.get_ident()


def test_what_an_evaluation_raises_is_raised_in_the_loop(clock):
    def fail(blocks):
        raise RunError("no such data")

    evaluations = Evaluations(clock, fail)
    evaluations.begin([], lambda _: pytest.fail("there is nothing to tell"))
    with pytest.raises(RunError, match="no such data"):
        turn(clock, lambda: False)
    evaluations.close()


def test_it_computes_with_as_many_threads_as_the_run(clock):
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    found = []
    try:
        evaluations = Evaluations(clock, lambda blocks: torch.get_num_threads())
        evaluations.begin([], found.append)
        evaluations.settle()
        evaluations.close()
    finally:
        torch.set_num_threads(before)
    assert found == [1]


def test_closing_waits_for_the_one_under_way_and_forgets_the_others(clock):
    begun, may_go_on, told = threading.Event(), threading.Event(), []

    def evaluate(blocks):
        begun.set()
        may_go_on.wait()
        return blocks[0]

    evaluations = Evaluations(clock, evaluate)
    evaluations.begin(["first"], told.append)
    evaluations.begin(["second"], told.append)
    begun.wait()
    closing = threading.Thread(target=evaluations.close)
    closing.start()
    while not evaluations.closed:
        pass
    may_go_on.set()
    closing.join()
    assert told == ["first"]
    assert not [thread for thread in threading.enumerate() if thread.name == "evaluation"]


def test_closing_does_not_wait_for_ever_for_one_that_does_not_end(clock):
    begun, may_end, told = threading.Event(), threading.Event(), []

    def evaluate(blocks):
        begun.set()
        may_end.wait()

    evaluations = Evaluations(clock, evaluate)
    evaluations.begin([], told.append)
    begun.wait()
    evaluations.close(0.0)
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "evaluation"]
    may_end.set()
    thread.join()
    assert not told
