"""`Kernel.end`: one walker ends at its present place, and the others continue."""

import pytest

from outpace.kernel import Kernel, Mailbox


@pytest.fixture(params=[None, 3])
def kernel(request):
    return Kernel(tie_seed=request.param)


async def _end_after(kernel, walker, delay_s):
    await kernel.sleep(delay_s)
    kernel.end(walker)


def test_a_walker_that_sleeps_ends_and_cleans_up(kernel):
    seen = []

    async def sleeper():
        try:
            await kernel.sleep(10)
            seen.append("woke")
        finally:
            seen.append(kernel.now)

    walker = kernel.spawn(sleeper())
    kernel.spawn(_end_after(kernel, walker, 2))
    kernel.spawn(_end_after(kernel, walker, 3))  # a second time: nothing
    assert kernel.run() == 3_000_000_000
    assert seen == [2_000_000_000]
    assert walker.done


def test_a_message_goes_to_the_next_receiver_and_not_to_one_that_has_ended(kernel):
    box, got = Mailbox(kernel), []

    async def receiver(name):
        got.append((name, await box.get()))

    async def ends_the_first():
        await kernel.sleep(1)
        kernel.end(first)
        box.put("a message")

    first = kernel.spawn(receiver("first"), daemon=True)

    async def later():
        await kernel.sleep(0.5)
        await receiver("second")

    kernel.spawn(later())
    kernel.spawn(ends_the_first())
    kernel.run()
    assert got == [("second", "a message")]
