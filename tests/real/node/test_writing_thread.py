"""Files of checkpoints are written by a thread beside the work of a process."""

from __future__ import annotations

import threading

import pytest

from outpace.real.net.clock import RealClock
from outpace.real.node.saving.thread import WritingThread


class Work:
    """The thread, the clock that its results come to, and these results."""

    def __init__(self) -> None:
        self.clock, self.results = RealClock(), []
        self.thread = WritingThread(self.clock)

    def do(self, job):
        self.thread.do(job, self.results.append)

    def hear(self, count):
        while len(self.results) < count:
            self.clock(None)


@pytest.fixture
def work():
    return Work()


def test_jobs_are_done_one_after_the_other_and_their_results_come_to_the_thread_of_the_clock(work):
    threads = []
    for number in range(3):
        work.do(lambda number=number: (threads.append(threading.current_thread()), number)[1])
    work.hear(3)
    assert work.results == [0, 1, 2]
    assert len(set(threads)) == 1
    assert threads[0] is not threading.current_thread()


def test_an_error_of_a_job_is_raised_in_the_thread_of_the_clock_and_later_jobs_are_done(work):
    def fail():
        raise ZeroDivisionError("a mistake")

    work.do(fail)
    work.do(lambda: "next")
    with pytest.raises(ZeroDivisionError, match="a mistake"):
        work.hear(1)
    work.hear(1)
    assert work.results == ["next"]


def test_finish_hands_all_results_over(work):
    work.thread.finish()  # it has nothing to do
    for number in range(3):
        work.do(lambda number=number: number)
    work.thread.finish()
    assert work.results == [0, 1, 2]
    work.do(lambda: "after it")
    work.hear(4)
    assert work.results[-1] == "after it"
