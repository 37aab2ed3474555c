"""The order of walkers and events: rules 1 and 2 of the kernel."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outpace.kernel import Kernel
from outpace.support.units import SECOND

MODERATE = settings(deadline=None, max_examples=60)
NANOSECONDS = st.integers(0, 5)  # few values, so that ties are common


def ns(count):
    return count / SECOND


def run_sleepers(delays, tie_seed=None):
    """Run walkers that sleep `delays[w]` in turn; return the events as (time, walker, step)."""
    kernel, seen = Kernel(tie_seed=tie_seed), []

    async def sleeper(walker):
        for step, delay in enumerate(delays[walker]):
            await kernel.sleep(ns(delay))
            seen.append((kernel.now, walker, step))

    for walker in range(len(delays)):
        kernel.spawn(sleeper(walker), f"sleeper {walker}")
    kernel.run()
    return seen


def test_events_fall_due_by_time_then_by_creation_whatever_made_them():
    kernel, seen = Kernel(), []

    async def sleeper():
        kernel.call_at(5, seen.append, "call made first")
        await kernel.sleep(ns(5))
        seen.append("sleep")

    async def late():
        kernel.call_at(5, seen.append, "call made last")
        kernel.call_at(4, seen.append, "earlier time")

    kernel.spawn(sleeper())
    kernel.spawn(late())
    kernel.run()
    assert seen == ["earlier time", "call made first", "sleep", "call made last"]


@pytest.mark.parametrize(
    ("duration_s", "expected"),
    [(1.5, 1_500_000_000), (1e-9, 1), (0.4e-9, 0), (0.6e-9, 1), (86_400.0, 86_400 * SECOND)],
)
def test_a_sleep_lasts_the_nearest_whole_nanosecond(duration_s, expected):
    kernel = Kernel()

    async def sleeper():
        await kernel.sleep(duration_s)

    kernel.spawn(sleeper())
    now = kernel.run()
    assert now == expected
    assert isinstance(now, int)


@MODERATE
@given(st.lists(st.lists(NANOSECONDS, max_size=5), min_size=1, max_size=6), st.integers(0, 2**32))
def test_shuffling_ties_moves_nothing_in_time(delays, tie_seed):
    shuffled = run_sleepers(delays, tie_seed)
    assert sorted(shuffled) == sorted(run_sleepers(delays))
    times = [time for time, _, _ in shuffled]
    assert times == sorted(times)


def test_a_tie_seed_shuffles_walkers_made_ready_together():
    def order(tie_seed):
        kernel, seen = Kernel(tie_seed=tie_seed), []

        async def say(k):
            seen.append(k)

        for k in range(8):
            kernel.spawn(say(k))
        kernel.run()
        return tuple(seen)

    orders = {order(tie_seed) for tie_seed in range(10)}
    assert len(orders) > 5
    assert all(sorted(seen) == list(range(8)) for seen in orders)
