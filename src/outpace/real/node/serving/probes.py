"""A server's side of the probe before a run; see `real.net.probes`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from time import monotonic_ns

from outpace.blocks.block import Block
from outpace.real.net.probe_messages import Probe, ProbeAnswer
from outpace.real.net.probes import MOST_PROBES, SIZES
from outpace.real.node.serving.times import ServiceTimes
from outpace.sync.messages import WireMessage


class ProbeAnswers:
    """Answers a limited number of probes of each worker.

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
