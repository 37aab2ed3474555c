"""Other threads have actions run in the thread of a clock."""

from __future__ import annotations

import threading
import time

from outpace.real.net.clock import RealClock
from outpace.real.net.waker import Waker


def test_an_action_is_waited_for_no_longer_than_the_limit():
    waker, heard = Waker(RealClock()), list[str]()
    waker.run_within(0.01)
    assert heard == []
    started = time.monotonic()
    timer = threading.Timer(0.05, lambda: waker.call(lambda: heard.append("it")))
    timer.start()
    waker.run_within(60.0)
    assert heard == ["it"]
    assert time.monotonic() - started < 30.0
    timer.join()


def test_a_thread_that_is_late_does_no_harm():
    waker, heard = Waker(RealClock()), list[str]()
    waker.stop()
    waker.close()
    waker.call(lambda: heard.append("late"))
    assert waker.left == []
