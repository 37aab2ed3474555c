"""Gradients whose computation messages can stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from outpace.blocks.block import Block
from outpace.real.node.served_worker.inbox import Inbox
from outpace.real.node.worker_process import WorkerProcess
from outpace.record.timing import STOPPED
from outpace.support.units import Time, nanoseconds, seconds
from outpace.sync.messages import Message
from outpace.sync.programs.context import Stopped


async def compute_until(
    worker: WorkerProcess,
    inbox: Inbox,
    parameters: Sequence[Block],
    iteration: int,
    ends_it: Callable[[Message], bool],
) -> Sequence[Block | None] | Stopped:
    """Compute a gradient, but stop when `ends_it` is true of a message in the inbox.

    If the configuration has a law of run times, the computation takes the drawn time.
    """
    started = worker.now
    duration_s = worker.draw_s(iteration, started)

    def stopped() -> Stopped:
        worked_s = min(duration_s, worker.worked_s(started))
        return Stopped(worked_s / duration_s)

    def is_over() -> bool:
        while message := inbox.take_nowait():
            if ends_it(message):
                return True
        return False

    gradient = await worker.trainer.gradient(parameters, iteration, worker.rate_limited(is_over))
    if isinstance(gradient, Stopped):
        _note_stopped(worker, iteration, started)
        return stopped() if duration_s else gradient
    if duration_s:
        worker.kernel.catch_up()
        rest_s = max(0.0, duration_s - worker.worked_s(started))
        if not worker.trainer.stops:  # so neither would a computation of this duration
            await worker.kernel.sleep(rest_s)
        elif await _hears_within(worker, inbox, rest_s, ends_it):
            _note_stopped(worker, iteration, started)
            return stopped()
    worker.computed(iteration, started)
    return gradient


async def _hears_within(
    worker: WorkerProcess,
    inbox: Inbox,
    limit_s: float,
    wanted: Callable[[Message], bool],
) -> bool:
    """Take messages until one is wanted; False if none is within the limit."""
    end = worker.now + nanoseconds(limit_s)
    while message := await inbox.recv_within(seconds(max(0, end - worker.now))):
        if wanted(message):
            return True
    return False


def _note_stopped(worker: WorkerProcess, iteration: int, started: Time) -> None:
    if worker.is_recorded(iteration):
        worker.note_computation(STOPPED, iteration, started)
