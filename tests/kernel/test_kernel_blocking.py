"""Blocking calls: sleeps, futures, notifications, messages, other walkers."""

import math

import pytest

from outpace.kernel import DeadlockError, Future, Kernel, Mailbox


def finish(kernel, body):
    """Run `body` to its end and return its result."""
    outcome = []

    async def collect():
        outcome.append(await body)

    kernel.spawn(collect(), "main")
    kernel.run()
    return outcome[0]


def test_a_deadlock_says_what_each_walker_waits_for():
    kernel = Kernel()
    box, future = Mailbox(kernel, "the box"), Future(kernel, "the answer")

    async def in_box():
        await box.get()

    async def in_future():
        await future

    async def in_wait():
        await kernel.wait()

    async def at_the_end():
        await first

    first, *_ = [
        kernel.spawn(body, f"walker {k}")
        for k, body in enumerate((in_box(), in_future(), in_wait(), at_the_end()))
    ]
    with pytest.raises(DeadlockError) as error:
        kernel.run()
    waiting = [line.split(" since ")[0].strip() for line in str(error.value).splitlines()[1:]]
    assert waiting == [
        "walker 0 waits for a message in the box",
        "walker 1 waits for the answer",
        "walker 2 waits for a notification",
        "walker 3 waits for the end of walker 0",
    ]
    kernel.close()


# -- sleep -------------------------------------------------------------------------


@pytest.mark.parametrize("duration_s", [-1.0, -1e-12, math.nan, math.inf, -math.inf])
def test_a_sleep_that_is_negative_or_not_finite_is_refused(duration_s):
    kernel = Kernel()

    async def walk():
        with pytest.raises(ValueError, match="nothing can sleep for"):
            await kernel.sleep(duration_s)
        await kernel.sleep(1)  # nothing was left behind

    kernel.spawn(walk(), "walker")
    assert kernel.run() == 1_000_000_000


# -- futures and notifications -------------------------------------------------------


def test_a_future_wakes_all_waiters_in_order_and_keeps_its_value():
    kernel, seen = Kernel(), []
    future = Future(kernel)

    async def waiter(k, delay_s):
        await kernel.sleep(delay_s)
        seen.append((k, await future, kernel.now))

    for k in range(3):
        kernel.spawn(waiter(k, 0))
    kernel.spawn(waiter(3, 2))
    kernel.call_at(1_000_000_000, future.set, "value")
    kernel.run()
    second = 1_000_000_000
    assert seen == [(k, "value", second) for k in range(3)] + [(3, "value", 2 * second)]
    assert future.done


# -- other walkers -------------------------------------------------------------------


@pytest.mark.parametrize("wait_s", [0, 1])
@pytest.mark.parametrize("tie_seed", [None, *range(10)])
def test_a_message_of_the_last_instant_comes_before_the_end_of_the_time(wait_s, tie_seed):
    kernel = Kernel(tie_seed=tie_seed)
    box = Mailbox(kernel)
    due = wait_s * 1_000_000_000

    def first(_):  # an event that makes another one at the same instant
        kernel.call_at(due, lambda _: kernel.call_at(due, box.put, "in time", late=True))

    async def main():
        kernel.call_at(due, first)
        return await box.get_within(wait_s), await box.get_within(wait_s)

    assert finish(kernel, main()) == ("in time", None)


# -- several messages ----------------------------------------------------------------------


def collected(times, count):
    """Return when a walker has its lists of `count` messages, which arrive at these times."""
    kernel = Kernel()
    box, seen = Mailbox(kernel, "the box"), []

    async def take():
        for _ in range(len(times) // count):
            messages = await box.get_several(count)
            seen.append((kernel.now, messages))

    kernel.spawn(take(), "the taker")
    for number, time in enumerate(times):
        kernel.call_at(time, box.put, number)
    kernel.run()
    return seen


def test_several_messages_are_received_in_order_when_the_last_of_them_has_come():
    assert collected([1, 2, 5, 5, 9, 12], 3) == [(5, [0, 1, 2]), (12, [3, 4, 5])]
