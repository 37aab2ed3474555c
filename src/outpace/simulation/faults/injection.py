"""Lets the failures of a configuration happen at their times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from outpace.cluster.faults import RESENT_S, Fault, FaultKind, Faults, RandomFaults
from outpace.kernel import Kernel
from outpace.support.units import Time, nanoseconds
from outpace.sync.messages import server_name, worker_name


class Strike(NamedTuple):
    """A failure that happens now. duration: ns; 0 for a crash. factor: of run times."""

    kind: FaultKind
    node: str
    duration: Time
    factor: float


class Injection:
    """Calls `strike` for each failure.

    The random ones of a node are a function of the seed: another strategy meets the same ones.

    Args:
        after: failures until this time (ns) are past, where a run goes on from a checkpoint.
    """

    def __init__(
        self,
        faults: Faults,
        kernel: Kernel,
        seed: int,
        workers: int,
        servers: int,
        after: Time,
        strike: Callable[[Strike], None],
    ) -> None:
        self._kernel, self._strike, self._after = kernel, strike, after
        for fault in faults.schedule:
            if (at := nanoseconds(fault.at_s)) >= after:
                kernel.call_at(at, strike, _strike(fault, _node_of(fault)))
        for law, count, name in (
            (faults.workers, workers, worker_name),
            (faults.servers, servers, server_name),
        ):
            for node in range(count if law is not None else 0):
                assert law is not None
                purpose = f"failures of {name(0).partition('-')[0]}s"
                self._next(law.times(seed, purpose, node), _strike(law, name(node)))

    def _next(self, times: Iterator[Time], what: Strike) -> None:
        """Wait for the next failure of a node."""

        def struck(_: object) -> None:
            self._strike(what)
            self._next(times, what)

        due = next(time for time in times if time >= self._after)
        self._kernel.call_at(max(due, self._kernel.now), struck)


def _strike(fault: Fault | RandomFaults, node: str) -> Strike:
    for_s = fault.for_s
    if for_s is None:
        for_s = RESENT_S if fault.kind == "loss" else 0.0
    return Strike(fault.kind, node, nanoseconds(for_s), fault.factor or 1.0)


def _node_of(fault: Fault) -> str:
    if fault.worker is not None:
        return worker_name(fault.worker)
    assert fault.server is not None
    return server_name(fault.server)
