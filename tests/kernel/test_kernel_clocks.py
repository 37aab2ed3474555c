"""Real clocks, here a fake one, with messages that arrive from outside."""

from collections import deque
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outpace.kernel import Kernel, Mailbox, TimedOut
from outpace.support.units import SECOND


class Outside:
    """A clock with given messages from outside, (time, message), and given delays.

    Like a poll of sockets it returns at the next event or at the next message, whichever is first,
    but `late[0], late[1], ...` ns too late.
    """

    def __init__(self, script=(), late=()):
        self.time = 0
        self.asked = []
        self._script, self._late = deque(sorted(script)), deque(late)
        self.kernel = Kernel(self)
        self.box = Mailbox(self.kernel, "the socket")

    def __call__(self, next_event):
        self.asked.append(next_event)
        wake = next_event
        if self._script and (wake is None or self._script[0][0] <= wake):
            wake = self._script[0][0]
        if wake is None:
            return None
        late = self._late.popleft() if self._late else 0
        self.time = max(self.time, wake) + late
        while self._script and self._script[0][0] <= self.time:
            self.box.put(self._script.popleft()[1])
        return self.time


async def sleep(kernel, duration_ns, seen):
    await kernel.sleep(duration_ns / SECOND)
    seen.append(("slept", kernel.now))


async def receive(outside, count, seen):
    for _ in range(count):
        message = await outside.box.get()
        seen.append((message, outside.kernel.now))


def test_what_came_in_is_handled_before_events_that_are_due():
    outside, seen = Outside(script=[(12, "message")], late=[5]), []
    outside.kernel.spawn(sleep(outside.kernel, 10, seen))
    outside.kernel.spawn(receive(outside, 1, seen))
    outside.kernel.run()
    assert seen == [("message", 15), ("slept", 15)]


def test_now_never_goes_back_even_if_the_clock_does():
    readings = deque([5, 3])
    kernel, seen = Kernel(lambda _: readings.popleft() if readings else 20), []

    async def look():
        with pytest.raises(TimedOut), kernel.timeout(4 / SECOND):
            await kernel.wait()
        seen.append(kernel.now)  # the clock said 5
        await kernel.sleep(5 / SECOND)
        seen.append(kernel.now)  # it said 3, then 20

    kernel.spawn(look())
    kernel.run()
    assert seen == [5, 20]


def test_a_message_that_arrives_late_in_the_instant_of_a_timeout_is_received():
    outside, seen = Outside(script=[(9, "message")], late=[5]), []

    async def walk():
        with outside.kernel.timeout(8 / SECOND):
            seen.append(await outside.box.get())

    # The clock is asked for 8, wakes at 13 and brings what came at 9.
    outside.kernel.spawn(walk())
    outside.kernel.run()
    assert seen == ["message"]


@settings(deadline=None, max_examples=80)
@given(
    script=st.lists(st.integers(0, 30), max_size=8),
    late=st.lists(st.integers(0, 6), max_size=20),
    naps=st.lists(st.integers(0, 8), min_size=1, max_size=8),
)
def test_whatever_the_clock_does_time_is_monotonic_and_nothing_is_lost(script, late, naps):
    outside, seen = Outside(script=[(t, k) for k, t in enumerate(script)], late=late), []
    kernel = outside.kernel

    async def sleeper():
        for nap in naps:
            before = kernel.now
            await kernel.sleep(nap / SECOND)
            seen.append(("slept", kernel.now))
            assert kernel.now >= before + nap

    kernel.spawn(sleeper())
    kernel.spawn(receive(outside, len(script), seen))
    kernel.run()
    times = [time for _, time in seen]
    assert all(earlier <= later for earlier, later in pairwise(times))
    messages = [what for what, _ in seen if what != "slept"]
    assert messages == sorted(range(len(script)), key=lambda k: (script[k], k))


def test_when_the_time_is_set_everything_due_keeps_its_distance():
    kernel, seen = Kernel(), []

    async def patient():
        with pytest.raises(TimedOut), kernel.timeout(30 / SECOND):
            await kernel.wait()
        seen.append(("timed out", kernel.now))

    async def setter():
        await kernel.sleep(10 / SECOND)
        kernel.set_time(1000)
        await kernel.sleep(5 / SECOND)
        seen.append(("set", kernel.now))

    for duration_ns in (20, 8):
        kernel.spawn(sleep(kernel, duration_ns, seen))
    kernel.spawn(patient())
    kernel.spawn(setter())
    kernel.run()
    assert seen == [("slept", 8), ("set", 1005), ("slept", 1010), ("timed out", 1020)]
