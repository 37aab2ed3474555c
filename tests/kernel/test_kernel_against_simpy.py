"""Programs have the same event times on SimPy, an independent simulator."""

import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from outpace.kernel import Kernel, Mailbox, TimedOut
from outpace.support.units import SECOND

MODERATE = settings(deadline=None, max_examples=50)


@MODERATE
@given(
    st.lists(st.integers(0, 20), min_size=1, max_size=6),
    st.lists(st.integers(0, 20), min_size=1, max_size=6),
)
def test_timeouts_strike_when_simpys_race_between_message_and_timeout_is_lost(puts, limits):
    # Odd times for messages, even ones for timeouts: so there are no ties, which SimPy orders
    # differently.
    puts = [2 * time + 1 for time in sorted(puts)]
    kernel, ours = Kernel(), []
    env, theirs = simpy.Environment(), []
    box, store = Mailbox(kernel), simpy.Store(env)

    async def receiver():
        for limit in limits:
            start = kernel.now + kernel.now % 2  # back to even
            await kernel.sleep((start - kernel.now) / SECOND)
            try:
                with kernel.timeout(2 * limit / SECOND):
                    ours.append((await box.get(), kernel.now))
            except TimedOut:
                ours.append(("timed out", kernel.now))

    def process():
        for limit in limits:
            yield env.timeout(env.now % 2)
            get, late = store.get(), env.timeout(2 * limit)
            yield get | late
            if get.triggered:
                theirs.append((get.value, env.now))
            else:
                get.cancel()
                theirs.append(("timed out", env.now))

    def sender():
        for message, time in enumerate(puts):
            yield env.timeout(time - env.now)
            yield store.put(message)

    for message, time in enumerate(puts):
        kernel.call_at(time, box.put, message)
    kernel.spawn(receiver())
    env.process(process())
    env.process(sender())
    kernel.run()
    env.run()
    assert ours == theirs
