"""Timeouts: the calls that they interrupt, and that no message is lost (rule 3)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outpace.kernel import Future, Kernel, Mailbox, TimedOut
from outpace.support.units import SECOND

MODERATE = settings(deadline=None, max_examples=80)
TIE_SEEDS = [None, 0, 1, 2, 3]


def ns(count):
    return count / SECOND


@pytest.mark.parametrize("what", ["sleep", "future", "notification", "end"])
def test_a_timeout_strikes_a_walker_whatever_it_waits_for(what):
    kernel, seen = Kernel(), []
    future = Future(kernel)

    async def forever():
        await kernel.wait()

    async def walk():
        waits = {
            "sleep": lambda: kernel.sleep(1),
            "future": lambda: future,
            "notification": kernel.wait,
            "end": lambda: other,
        }
        with pytest.raises(TimedOut), kernel.timeout(ns(7)):
            await waits[what]()
        seen.append(kernel.now)

    other = kernel.spawn(forever(), "other", daemon=True)
    walker = kernel.spawn(walk())
    assert kernel.run() == 7
    assert seen == [7]
    future.set(None)  # wakes no walker
    assert not walker.notify()
    kernel.close()


def test_the_handler_of_an_inner_timeout_does_not_catch_the_outer_one():
    kernel, seen = Kernel(), []

    async def walk():
        try:
            with kernel.timeout(2.5):
                while True:
                    try:
                        with kernel.timeout(1):
                            await kernel.wait()
                    except TimedOut:
                        seen.append(("try again", kernel.now))
                        if len(seen) > 5:
                            return
        except TimedOut:
            seen.append(("give up", kernel.now))

    kernel.spawn(walk())
    kernel.run()
    assert seen == [
        ("try again", SECOND),
        ("try again", 2 * SECOND),
        ("give up", 2.5 * SECOND),
    ]


@pytest.mark.parametrize("tie_seed", TIE_SEEDS)
def test_two_timeouts_of_the_same_instant_strike_once(tie_seed):
    kernel, seen = Kernel(tie_seed=tie_seed), []

    async def walk():
        try:
            with kernel.timeout(1), kernel.timeout(1):
                await kernel.sleep(10)
        except TimedOut:
            seen.append(kernel.now)
        await kernel.sleep(1)
        seen.append(kernel.now)

    kernel.spawn(walk())
    kernel.run()
    assert seen == [SECOND, 2 * SECOND]


# -- nothing is swallowed ------------------------------------------------------------


@MODERATE
@given(
    puts=st.lists(st.integers(0, 12), max_size=12),
    timeouts=st.lists(st.integers(0, 6), max_size=12),
    tie_seed=st.none() | st.integers(0, 2**16),
)
def test_a_timed_out_receive_never_swallows_a_later_message(puts, timeouts, tie_seed):
    kernel, received = Kernel(tie_seed=tie_seed), []
    box = Mailbox(kernel)
    sent = []

    def put(message):
        sent.append(message)
        box.put(message)

    for message, time in enumerate(puts):
        kernel.call_at(time, put, message)

    async def receiver():
        for timeout in timeouts:
            try:
                with kernel.timeout(ns(timeout)):
                    received.append(await box.get())
            except TimedOut:
                pass
        while len(received) < len(puts):
            received.append(await box.get())

    kernel.spawn(receiver())
    kernel.run()
    assert received == sent
