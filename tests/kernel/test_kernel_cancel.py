"""Cancellation and timeouts: what they interrupt, and that no message is lost (rule 3)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outpace.kernel import (
    Cancelled,
    DeadlockError,
    Future,
    Kernel,
    Mailbox,
    State,
    TimedOut,
    WalkerCancelled,
)
from outpace.support.units import SECOND

MODERATE = settings(deadline=None, max_examples=80)
TIE_SEEDS = [None, 0, 1, 2, 3]


def ns(count):
    return count / SECOND


def spawn_sleeper(kernel, seen, duration_s=10.0, name="sleeper"):
    async def sleeper():
        try:
            await kernel.sleep(duration_s)
            seen.append("slept")
        finally:
            seen.append(("cleaned up", kernel.now))

    return kernel.spawn(sleeper(), name)


# -- cancel --------------------------------------------------------------------------


def test_cancelling_a_sleeper_ends_it_at_once_and_runs_its_cleanup():
    kernel, seen = Kernel(), []
    sleeper = spawn_sleeper(kernel, seen)
    kernel.call_at(SECOND, lambda _: sleeper.cancel())
    assert kernel.run() == SECOND
    assert seen == [("cleaned up", SECOND)]
    assert sleeper.state is State.DONE
    assert sleeper.cancelled


def test_the_end_of_a_cancelled_sleep_comes_to_nothing():
    kernel, seen = Kernel(), []
    sleeper = spawn_sleeper(kernel, seen, 2.0)
    spawn_sleeper(kernel, seen, 3.0)
    kernel.call_at(SECOND, lambda _: sleeper.cancel())
    kernel.run()
    assert seen == [("cleaned up", SECOND), "slept", ("cleaned up", 3 * SECOND)]


def test_a_cancelled_receiver_leaves_the_messages_to_others():
    kernel, seen = Kernel(), []
    box = Mailbox(kernel)

    async def receiver(k):
        seen.append((k, await box.get()))

    first, _ = kernel.spawn(receiver(0)), kernel.spawn(receiver(1))
    kernel.call_at(1, lambda _: first.cancel())
    kernel.call_at(2, box.put, "message")
    kernel.run()
    assert seen == [(1, "message")]


@pytest.mark.parametrize("what", ["future", "notification", "end"])
def test_cancel_strikes_a_walker_whatever_it_waits_for(what):
    kernel = Kernel()
    future = Future(kernel)
    other = kernel.spawn(forever(kernel), "other", daemon=True)

    async def walk():
        if what == "future":
            await future
        elif what == "notification":
            await kernel.wait()
        else:
            await other.join()

    walker = kernel.spawn(walk())
    kernel.call_at(7, lambda _: walker.cancel())
    assert kernel.run() == 7
    assert walker.cancelled
    future.set(None)  # wakes no walker
    kernel.close()


async def forever(kernel):
    await kernel.wait()


@pytest.mark.parametrize("tie_seed", TIE_SEEDS)
def test_a_walker_handed_a_message_keeps_it_and_is_struck_where_it_blocks_next(tie_seed):
    kernel, seen = Kernel(tie_seed=tie_seed), []
    box = Mailbox(kernel)

    async def receiver():
        while True:
            seen.append(await box.get())

    walker = kernel.spawn(receiver())

    def put_and_cancel(_):
        box.put("message")
        walker.cancel()

    kernel.call_at(5, put_and_cancel)
    assert kernel.run() == 5
    assert seen == ["message"]
    assert walker.cancelled


def test_a_walker_cancelled_before_its_start_runs_to_where_it_blocks_first():
    kernel, seen = Kernel(), []

    async def walk():
        seen.append("started")
        await kernel.sleep(1)
        seen.append("slept")

    walker = kernel.spawn(walk())
    walker.cancel()
    assert kernel.run() == 0
    assert seen == ["started"]
    assert walker.cancelled


def test_cancelling_a_walker_that_is_done_does_nothing():
    kernel, seen = Kernel(), []
    sleeper = spawn_sleeper(kernel, seen, 1.0)
    kernel.run()
    sleeper.cancel()
    kernel.run()
    assert not sleeper.cancelled
    assert seen == ["slept", ("cleaned up", SECOND)]


def test_a_walker_that_ends_before_the_strike_keeps_its_result():
    kernel, seen = Kernel(), []
    box = Mailbox(kernel)

    async def receiver():
        return await box.get()

    async def parent():
        seen.append(await walker.join())

    walker = kernel.spawn(receiver())
    kernel.spawn(parent())

    def put_and_cancel(_):
        box.put("message")
        walker.cancel()

    kernel.call_at(5, put_and_cancel)
    kernel.run()
    assert seen == ["message"]
    assert not walker.cancelled


def test_cancelling_twice_ends_it_once():
    kernel, seen = Kernel(), []
    sleeper = spawn_sleeper(kernel, seen)

    def cancel_twice(_):
        sleeper.cancel()
        sleeper.cancel()

    kernel.call_at(1, cancel_twice)
    kernel.run()
    assert seen == [("cleaned up", 1)]


def test_a_walker_that_cancels_itself_is_struck_where_it_blocks():
    kernel, seen = Kernel(), []

    async def walk():
        walker.cancel()
        seen.append("still here")
        await kernel.sleep(1)
        seen.append("never")

    walker = kernel.spawn(walk())
    assert kernel.run() == 0
    assert seen == ["still here"]


def test_except_exception_does_not_catch_a_cancellation():
    kernel, seen = Kernel(), []

    async def walk():
        try:
            await kernel.sleep(1)
        except Exception:
            seen.append("caught")

    walker = kernel.spawn(walk())
    kernel.call_at(1, lambda _: walker.cancel())
    kernel.run()
    assert seen == []
    assert not issubclass(Cancelled, Exception)


def test_a_cancelled_walker_may_take_its_time_to_clean_up():
    kernel, seen = Kernel(), []

    async def walk():
        try:
            await kernel.sleep(10)
        finally:
            await kernel.sleep(1)
            seen.append(kernel.now)

    walker = kernel.spawn(walk())
    kernel.call_at(SECOND, lambda _: walker.cancel())
    kernel.run()
    assert seen == [2 * SECOND]
    assert walker.cancelled


# -- timeouts ------------------------------------------------------------------------


def test_a_timeout_strikes_at_its_time_and_names_the_walker():
    kernel, seen = Kernel(), []

    async def walk():
        with pytest.raises(TimedOut, match=r"patient: 1\.5 s are over"), kernel.timeout(1.5):
            await kernel.sleep(10)
        seen.append(kernel.now)

    kernel.spawn(walk(), "patient")
    assert kernel.run() == 1.5 * SECOND
    assert seen == [1.5 * SECOND]
    assert issubclass(TimedOut, TimeoutError)


def test_a_timeout_that_was_left_never_strikes():
    kernel, seen = Kernel(), []

    async def walk():
        with kernel.timeout(2):
            await kernel.sleep(1)
        await kernel.sleep(5)
        seen.append(kernel.now)

    kernel.spawn(walk())
    kernel.run()
    assert seen == [6 * SECOND]


def test_a_timeout_left_by_an_exception_never_strikes():
    kernel, seen = Kernel(), []

    async def walk():
        with pytest.raises(KeyError), kernel.timeout(2):
            raise KeyError
        await kernel.sleep(5)
        seen.append(kernel.now)

    kernel.spawn(walk())
    kernel.run()
    assert seen == [5 * SECOND]


@pytest.mark.parametrize("tie_seed", TIE_SEEDS)
def test_a_message_that_comes_in_the_instant_of_the_timeout_is_not_swallowed(tie_seed):
    kernel, seen = Kernel(tie_seed=tie_seed), []
    box = Mailbox(kernel)

    async def walk():
        try:
            with kernel.timeout(ns(5)):
                seen.append(await box.get())
        except TimedOut:
            seen.append(await box.get())

    kernel.spawn(walk())
    kernel.call_at(5, box.put, "message")
    kernel.run()
    assert seen == ["message"]


def test_the_inner_of_nested_timeouts_strikes_the_inner_block_only():
    kernel, seen = Kernel(), []

    async def walk():
        with kernel.timeout(3):
            try:
                with kernel.timeout(1):
                    await kernel.sleep(10)
            except TimedOut:
                seen.append(("inner", kernel.now))
            await kernel.sleep(1)
            seen.append(("rest of the outer", kernel.now))

    kernel.spawn(walk())
    kernel.run()
    assert seen == [("inner", SECOND), ("rest of the outer", 2 * SECOND)]


def test_the_outer_of_nested_timeouts_ends_the_outer_block():
    kernel, seen = Kernel(), []

    async def walk():
        try:
            with kernel.timeout(1), kernel.timeout(3):
                await kernel.sleep(10)
        except TimedOut as error:
            seen.append((str(error), kernel.now))
        await kernel.sleep(5)  # the inner one does not come after us
        seen.append(kernel.now)

    kernel.spawn(walk(), "w")
    kernel.run()
    assert seen == [("w: 1 s are over", SECOND), 6 * SECOND]


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


def test_a_timeout_of_zero_lets_through_what_is_there_already():
    kernel = Kernel()
    box, seen = Mailbox(kernel), []
    box.put("message")

    async def walk():
        with kernel.timeout(0):
            seen.append(await box.get())
        with pytest.raises(TimedOut), kernel.timeout(0):
            await box.get()

    kernel.spawn(walk())
    kernel.run()
    assert seen == ["message"]


@pytest.mark.parametrize("duration_s", [-1.0, float("nan")])
def test_a_timeout_that_is_negative_or_not_a_number_is_refused(duration_s):
    kernel = Kernel()

    async def walk():
        with pytest.raises(ValueError), kernel.timeout(duration_s):  # noqa: PT011
            await kernel.sleep(1)

    kernel.spawn(walk())
    kernel.run()


def test_what_is_gathered_is_cancelled_together_when_the_parent_times_out():
    kernel, seen = Kernel(), []

    async def child(k):
        try:
            await kernel.sleep(k)
            seen.append((k, "done"))
        except Cancelled:
            seen.append((k, "cancelled", kernel.now))
            raise

    async def parent():
        with pytest.raises(TimedOut), kernel.timeout(2.5):
            await kernel.gather(*(child(k) for k in (1, 2, 3, 4)))

    kernel.spawn(parent())
    kernel.run()
    at = 2.5 * SECOND
    assert seen == [(1, "done"), (2, "done"), (3, "cancelled", at), (4, "cancelled", at)]


def test_what_is_gathered_is_cancelled_when_the_parent_is_cancelled():
    kernel = Kernel()

    async def parent():
        await kernel.gather(kernel_sleep(kernel, 5), kernel_sleep(kernel, 6))

    walker = kernel.spawn(parent())
    kernel.call_at(SECOND, lambda _: walker.cancel())
    assert kernel.run() == SECOND
    assert kernel.walkers == []


async def kernel_sleep(kernel, duration_s):
    await kernel.sleep(duration_s)


def test_cancelling_a_gathered_walker_cancels_the_others():
    kernel, seen = Kernel(), []

    async def parent():
        with pytest.raises(WalkerCancelled, match="parent/1"):
            await kernel.gather(kernel_sleep(kernel, 5), kernel_sleep(kernel, 6))
        seen.append(kernel.now)

    kernel.spawn(parent(), "parent")
    kernel.call_at(SECOND, lambda _: kernel.walkers[2].cancel())
    kernel.run()
    # The results are waited for in order: it hears of the second after the first.
    assert seen == [5 * SECOND]


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


@MODERATE
@given(
    puts=st.lists(st.integers(0, 8), min_size=1, max_size=10),
    cancels=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 3)), max_size=6),
    tie_seed=st.none() | st.integers(0, 2**16),
)
def test_cancelled_receivers_take_each_message_at_most_once_and_lose_none(puts, cancels, tie_seed):
    kernel, received = Kernel(tie_seed=tie_seed), []
    box = Mailbox(kernel)

    async def receiver():
        while True:
            received.append(await box.get())

    receivers = [kernel.spawn(receiver(), f"receiver {k}", daemon=True) for k in range(4)]
    for message, time in enumerate(puts):
        kernel.call_at(time, box.put, message)
    for time, k in cancels:
        kernel.call_at(time, lambda _, k=k: receivers[k].cancel())
    kernel.spawn(kernel_sleep(kernel, ns(10)))
    kernel.run()
    while len(box):
        received.append(box.get_nowait())
    assert sorted(received) == sorted(range(len(puts)))
    kernel.close()


def test_a_timeout_does_not_hide_a_deadlock_behind_it():
    kernel = Kernel()

    async def walk():
        with kernel.timeout(100):
            await kernel.sleep(1)
        await kernel.wait()

    kernel.spawn(walk(), "walker")
    with pytest.raises(DeadlockError, match=r"walker waits for a notification since 1\.000000 s"):
        kernel.run()
    assert kernel.now == SECOND
