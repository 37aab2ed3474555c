"""A worker's side of the probe before a run; see `real.net.probes`."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic_ns

import torch

from outpace.kernel import Kernel, Mailbox
from outpace.real.net.block_frames import head_of
from outpace.real.net.probe_messages import Probe, ProbeAnswer
from outpace.real.net.probes import SIZES, ProbeTurn
from outpace.real.net.transport import Caller
from outpace.real.node.timing import RequestTimes
from outpace.record.timing import PROBE
from outpace.support.units import Time

_NONE_DUE = -1, -1, -1


class ProbeOfServers:
    """Sends probes to all servers, one after another, and notes their times."""

    def __init__(self, kernel: Kernel, worker: int, times: RequestTimes) -> None:
        self._worker, self._times = worker, times
        self._answers = Mailbox[ProbeAnswer](kernel, "the answer to a probe")
        self._due = _NONE_DUE  # server, number and bytes of the answer that is due

    async def run(self, budget: Time, callers: Sequence[Caller]) -> None:
        """Exchange messages with the servers for at most `budget` ns."""
        zeros = torch.zeros(max(SIZES), dtype=torch.uint8, device="cpu")
        turn = ProbeTurn(self._worker, len(callers), budget)
        numbers = [0] * len(callers)
        for server, size in turn.exchanges():
            number, block = numbers[server], zeros[:size]
            numbers[server] += 1
            self._due = server, number, size
            began = monotonic_ns()
            callers[server].send(Probe(number, head_of(block)), block)
            self._times.sent(PROBE, server, number, size, began, pulls=True)
            await self._answers.get()
            turn.took(monotonic_ns() - began)

    def take(self, answer: ProbeAnswer) -> bool:
        """Take an answer that has just been read; False if it is not due."""
        if self._due != (answer.shard, answer.number, answer.block.nbytes):
            return False
        self._due = _NONE_DUE
        self._times.arrived(answer.shard, answer.number, answer.block.nbytes)
        self._answers.put(answer)
        return True
