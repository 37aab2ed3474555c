"""Gradients that the process of a worker pushes in parts, while it computes them."""

from __future__ import annotations

from collections.abc import Sequence

from outpace.blocks.block import Block
from outpace.blocks.readiness import shares_until_ready
from outpace.real.node.worker_process import WorkerProcess
from outpace.sync.programs.context import SendPart


async def compute_in_parts(
    worker: WorkerProcess,
    parameters: Sequence[Block],
    iteration: int,
    slices: Sequence[slice],
    forward_share: float,
    send: SendPart,
) -> None:
    """Compute a gradient, and send each part when it is complete.

    If the configuration has a law of run times, the parts leave when they are complete in virtual
    time, but not before the whole gradient is there.

    Args:
        slices: of the flat parameters, one for each server.
        forward_share: see `shares_until_ready`.
    """
    started = worker.now
    rest = await _send_parts(worker, parameters, iteration, slices, forward_share, send)
    worker.computed(iteration, started)
    for server, part in rest.items():
        send(server, part)


async def _send_parts(
    worker: WorkerProcess,
    parameters: Sequence[Block],
    iteration: int,
    slices: Sequence[slice],
    forward_share: float,
    send: SendPart,
) -> dict[int, Block | None]:
    """Send the parts that are complete before the end of the computation; return the others."""
    trainer, started = worker.trainer, worker.now
    duration_s = worker.draw_s(iteration, started)
    if duration_s:
        gradient = await trainer.gradient(parameters, iteration)
        assert isinstance(gradient, Sequence), "nothing ends this computation"
        shares = shares_until_ready(slices, forward_share)
        for share, server in sorted(zip(shares, range(len(slices)), strict=True)):
            worker.kernel.catch_up()
            rest_s = share * duration_s - worker.worked_s(started)
            if rest_s > 0:
                await worker.kernel.sleep(rest_s)
            send(server, gradient[server])
        return {}
    sent: set[int] = set()

    def send_now(server: int, part: Block | None) -> None:
        sent.add(server)
        send(server, part)

    rest = await trainer.gradient_in_parts(parameters, iteration, send_now)
    return {server: rest[server] for server in range(len(slices)) if server not in sent}
