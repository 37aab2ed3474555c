"""Calls after delays that recur, and walkers that wait for several messages."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outpace.kernel import DeadlockError, Kernel, Mailbox
from outpace.support.units import SECOND

MODERATE = settings(deadline=None, max_examples=60)
# For each call: when it is made, its delay, whether it is late, whether call_after makes it.
CALLS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 3), st.booleans(), st.booleans()), max_size=12
)


def made_at(kernel, seen, calls, *, always_at):
    """Make the calls at their times; `seen` gets the time and the place of each one."""

    def say(place):
        seen.append((kernel.now, place))

    def make(place):
        _, delay, late, after = calls[place]
        if after and not always_at:
            kernel.call_after(delay, say, place, late)
        else:
            kernel.call_at(kernel.now + delay, say, place, late)

    for place, (time, *_) in enumerate(calls):
        kernel.call_at(time, make, place)

    async def until_all_are_over():
        await kernel.sleep(20 / SECOND)

    kernel.spawn(until_all_are_over())


@MODERATE
@given(CALLS)
def test_calls_after_a_delay_come_in_the_order_of_calls_at_the_same_times(calls):
    orders = []
    for always_at in (True, False):
        kernel, seen = Kernel(), []
        made_at(kernel, seen, calls, always_at=always_at)
        kernel.run()
        orders.append(seen)
    assert orders[0] == orders[1]
    assert len(orders[0]) == len(calls)


@pytest.mark.parametrize("tie_seed", range(4))
def test_under_a_tie_seed_calls_after_a_delay_are_shuffled_and_none_is_early(tie_seed):
    kernel, seen = Kernel(tie_seed=tie_seed), []
    made_at(kernel, seen, [(0, 3, False, True)] * 6, always_at=False)
    kernel.run()
    assert {time for time, _ in seen} == {3}
    assert sorted(place for _, place in seen) == list(range(6))
    assert [place for _, place in seen] != list(range(6))


@pytest.mark.parametrize("late", [False, True])
def test_a_delay_cannot_be_negative(late):
    kernel = Kernel()
    kernel.call_after(0, print, late=True)
    kernel.call_after(0, print)
    with pytest.raises(ValueError, match="a delay of -1 ns is not possible"):
        kernel.call_after(-1, print, late=late)


def test_an_alarm_cannot_be_set_in_the_past():
    kernel = Kernel()
    kernel.set_time(5)
    kernel.call_off(kernel.set_alarm(5, print))
    with pytest.raises(ValueError, match="is past"):
        kernel.set_alarm(4, print)


def test_thousands_of_different_delays_are_served_in_order():
    kernel, seen = Kernel(), []
    for delay in range(3000, 0, -1):
        kernel.call_after(delay, seen.append, delay)

    async def wait():
        await kernel.sleep(3000 / SECOND)

    kernel.spawn(wait())
    kernel.run()
    assert seen == list(range(1, 3001))


def test_calls_after_a_delay_move_along_when_the_time_is_set():
    kernel, seen = Kernel(), []
    for delay in (10, 30, 30):
        kernel.call_after(delay, lambda _: seen.append(kernel.now))
    kernel.call_at(20, lambda _: kernel.set_time(1020))

    async def wait():
        await kernel.sleep(60 / SECOND)

    kernel.spawn(wait())
    assert kernel.run() == 1060
    assert seen == [10, 1030, 1030]


def test_a_call_after_a_delay_is_due_and_so_a_limit_is_no_deadlock():
    kernel, found = Kernel(), []

    async def wait():
        found.append(kernel.nothing_due)
        kernel.call_after(10, print)
        found.append(kernel.nothing_due)
        await kernel.wait()

    kernel.spawn(wait())
    assert kernel.run(until=5) == 5
    assert found == [True, False]


def test_after_close_no_call_is_left():
    kernel, seen = Kernel(), []
    kernel.call_after(1, seen.append, 1)
    kernel.close()

    async def wait():
        await kernel.sleep(5 / SECOND)

    kernel.spawn(wait())
    kernel.run()
    assert seen == []


# -- several messages ----------------------------------------------------------------------


def collected(times, count):
    """When a walker had each of its lists of `count` messages, which arrive at these times."""
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


def test_several_messages_that_are_there_are_received_at_once():
    kernel = Kernel()
    box = Mailbox(kernel)
    for number in range(3):
        box.put(number)

    async def take():
        return [await box.get_several(2), len(box)]

    found = []

    async def check():
        found.append(await take())

    kernel.spawn(check())
    kernel.run()
    assert found == [[[0, 1], 1]]


def test_a_walker_that_ends_while_it_waits_for_several_leaves_what_has_come():
    kernel = Kernel()
    box, seen = Mailbox(kernel), []

    async def take():
        await box.get_several(3)

    async def other():
        await kernel.sleep(2 / SECOND)
        kernel.end(taker)
        box.put("b")
        seen.extend([await box.get(), await box.get()])

    taker = kernel.spawn(take())
    kernel.spawn(other())
    kernel.call_at(1, box.put, "a")
    kernel.run()
    assert seen == ["a", "b"]


def test_a_deadlock_says_since_when_the_next_of_several_messages_is_awaited():
    kernel = Kernel()
    box = Mailbox(kernel, "the box")

    async def take():
        await box.get_several(3)

    kernel.spawn(take(), "the taker")
    for time in (SECOND, 2 * SECOND):
        kernel.call_at(time, box.put, time)
    expected = r"the taker waits for a message in the box since 2\.000000 s"
    with pytest.raises(DeadlockError, match=expected):
        kernel.run()
