"""The probe before a run, between workers and servers: see `real.net.probes`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from time import monotonic_ns

import torch

from outpace.blocks.block import Block
from outpace.kernel import Kernel, Mailbox
from outpace.real.net.block_frames import head_of
from outpace.real.net.probe_messages import Probe, ProbeAnswer
from outpace.real.net.probes import MOST_PROBES, SIZES, ProbeTurn
from outpace.real.net.transport import Caller
from outpace.real.node.timing import RequestTimes, ServiceTimes
from outpace.record.timing import PROBE
from outpace.support.units import Time
from outpace.sync.messages import WireMessage

_NONE_DUE = -1, -1, -1


class ProbeOfServers:
    """A worker's side."""

    def __init__(self, kernel: Kernel, worker: int, times: RequestTimes) -> None:
        self._worker, self._times = worker, times
        self._answers = Mailbox[ProbeAnswer](kernel, "the answer to a probe")
        self._due = _NONE_DUE  # server, number and bytes of the answer that is due

    async def run(self, budget: Time, callers: Sequence[Caller]) -> None:
        """Exchange messages with the servers for at most `budget` ns."""
        zeros = torch.zeros(max(SIZES), dtype=torch.uint8)
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


class ProbeAnswers:
    """A server's side: answers a limited number of probes of each worker.

    Args:
        is_time: returns whether workers may send probes now.
        send: sends a message to a worker.
    """

    def __init__(
        self,
        server: int,
        workers: Sequence[str],
        times: ServiceTimes,
        is_time: Callable[[], bool],
        send: Callable[[str, WireMessage, Block], None],
    ) -> None:
        self._server, self._workers, self._times = server, workers, times
        self._is_time, self._send = is_time, send
        self._answered: Counter[str] = Counter()

    def expected(self, peer: str, probe: Probe) -> tuple[str, int] | None:
        """Return which block may come with a probe of this worker; None: it must not come."""
        size = probe.block.elements
        may = self._is_time() and self._answered[peer] < MOST_PROBES and size in SIZES
        return ("uint8", size) if may else None

    def answer(self, peer: str, probe: Probe, block: Block) -> None:
        """Answer a probe that has just been read, whose block was expected."""
        number = self._answered[peer]
        self._answered[peer] += 1
        began = monotonic_ns()
        self._send(peer, ProbeAnswer(self._server, number, probe.block), block)
        self._times.probed(self._workers.index(peer), number, block.nbytes, began)
