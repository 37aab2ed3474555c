"""A thread carries out long operations during the work of a process."""

from __future__ import annotations

import threading

import pytest

from outpace.real.background import BackgroundThread
from outpace.real.net.clock import RealClock


class Work:
    """The thread, the clock that receives its results, and these results."""

    def __init__(self) -> None:
        self.clock, self.results = RealClock(), []
        self.thread = BackgroundThread(self.clock, "the test")

    def do(self, job):
        self.thread.do(job, self.results.append)

    def hear(self, count):
        while len(self.results) < count:
            self.clock(None)


@pytest.fixture
def work():
    return Work()


def test_an_error_of_a_job_is_raised_in_the_thread_of_the_clock_and_later_jobs_are_done(work):
    def fail():
        raise ZeroDivisionError("a mistake")

    work.do(fail)
    work.do(lambda: "next")
    with pytest.raises(ZeroDivisionError, match="a mistake"):
        work.hear(1)
    work.hear(1)
    assert work.results == ["next"]


def test_settling_hands_all_results_over(work):
    work.thread.settle()  # it has nothing to do
    for number in range(3):
        work.do(lambda number=number: number)
    work.thread.settle()
    assert work.results == [0, 1, 2]
    work.do(lambda: "after it")
    work.hear(4)
    assert work.results[-1] == "after it"


def test_closing_waits_for_the_job_under_way_and_forgets_the_others(work):
    begun, may_go_on = threading.Event(), threading.Event()

    def first():
        begun.set()
        may_go_on.wait()
        return "first"

    work.do(first)
    work.do(lambda: "second")
    begun.wait()
    closing = threading.Thread(target=work.thread.close)
    closing.start()
    while not work.thread.closed:
        pass
    may_go_on.set()
    closing.join()
    assert work.results == ["first"]
    assert not work.thread._thread.is_alive()
