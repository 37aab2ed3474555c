"""A run of the kernel continues, ends and fails."""

import contextlib
import gc
import tracemalloc

import pytest

from outpace.errors import RunError
from outpace.kernel import Kernel, Mailbox, WalkerError
from outpace.support.units import SECOND


async def sleep(kernel, duration_s, seen=None):
    await kernel.sleep(duration_s)
    if seen is not None:
        seen.append(kernel.now)


async def tick(kernel, seen, period_s=1.0):
    while True:
        await kernel.sleep(period_s)
        seen.append(kernel.now)


# -- ends ------------------------------------------------------------------------------


def test_work_started_in_the_last_instant_is_done():
    kernel, seen = Kernel(), []
    box = Mailbox(kernel)

    async def last():
        await kernel.sleep(1)
        box.put(None)

    async def server():
        await box.get()
        kernel.spawn(sleep(kernel, 2, seen))

    kernel.spawn(server(), daemon=True)
    kernel.spawn(last())
    assert kernel.run() == 3 * SECOND
    assert seen == [3 * SECOND]


def test_run_until_is_inclusive_and_may_be_resumed():
    kernel, seen = Kernel(), []
    kernel.spawn(tick(kernel, seen))
    assert kernel.run(until=2 * SECOND) == 2 * SECOND
    assert seen == [SECOND, 2 * SECOND]
    assert kernel.run(until=3 * SECOND + 1) == 3 * SECOND + 1
    assert seen == [SECOND, 2 * SECOND, 3 * SECOND]
    kernel.close()


def test_stop_ends_the_run_after_what_is_due_now():
    kernel, seen = Kernel(), []
    kernel.spawn(tick(kernel, seen))
    kernel.spawn(tick(kernel, seen))

    async def stopper():
        await kernel.sleep(2)
        kernel.stop()

    kernel.spawn(stopper())
    assert kernel.run() == 2 * SECOND
    assert seen == [SECOND, SECOND, 2 * SECOND, 2 * SECOND]
    kernel.close()


def test_close_cleans_up_every_walker_once():
    kernel, seen = Kernel(), []

    async def walk(k):
        try:
            await kernel.sleep(10)
        finally:
            seen.append(k)

    walkers = [kernel.spawn(walk(k)) for k in range(3)]
    unstarted = Kernel()
    unstarted.spawn(walk(9))
    kernel.run(until=SECOND)
    kernel.close()
    kernel.close()
    unstarted.close()
    gc.collect()  # a coroutine that was never awaited would warn here
    assert seen == [0, 1, 2]
    assert all(walker.done for walker in walkers)
    assert kernel.run() == SECOND


# -- failures --------------------------------------------------------------------------


def test_an_exception_stops_the_run_with_the_walkers_name_and_the_virtual_time():
    kernel, seen = Kernel(), []

    async def walk():
        await kernel.sleep(1.25)
        raise KeyError("lost")

    kernel.spawn(walk(), "worker-7")
    kernel.spawn(sleep(kernel, 2, seen))
    with pytest.raises(WalkerError, match=r"worker-7 failed at 1\.250000 s: KeyError: 'lost'") as e:
        kernel.run()
    assert seen == []
    assert isinstance(e.value.__cause__, KeyError)
    assert e.value.error is e.value.__cause__
    assert (e.value.walker, e.value.at) == ("worker-7", 1_250_000_000)
    assert isinstance(e.value, RunError)
    kernel.close()


# -- memory ----------------------------------------------------------------------------


def grown_bytes(work):
    """Return the bytes that `work` leaves allocated in its second call."""
    work()
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        work()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("what", "most"),
    [("sleeps", 8_000), ("messages", 8_000), ("walkers", 8_000), ("timeouts", 100_000)],
)
def test_memory_does_not_grow_with_the_number_of(what, most):
    kernel = Kernel()
    box = Mailbox(kernel)

    async def child():
        await kernel.sleep(0.001)

    async def forever():
        while True:
            if what == "messages":
                box.put(None)
                await box.get()
            with kernel.timeout(3600) if what == "timeouts" else contextlib.nullcontext():
                await kernel.sleep(0.001)
            if what == "walkers":
                await kernel.spawn(child())

    kernel.spawn(forever())
    assert grown_bytes(lambda: kernel.run(until=kernel.now + 10 * SECOND)) < most
    kernel.close()
