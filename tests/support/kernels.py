"""A kernel in virtual time; a test lets its time pass."""

from __future__ import annotations

from outpace.kernel import Kernel


def run_for(kernel: Kernel, duration_s: float) -> None:
    """Let this time pass, with all events in it."""

    async def sleeper() -> None:
        await kernel.sleep(duration_s)

    kernel.spawn(sleeper(), "the test")
    kernel.run()
