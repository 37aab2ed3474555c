"""Makes the failures of a configuration happen at their times."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from outpace.cluster.faults import Fault, Faults
from outpace.kernel import Kernel
from outpace.support.units import Time, nanoseconds
from outpace.sync.messages import server_name, worker_name


def inject(
    faults: Faults,
    kernel: Kernel,
    seed: int,
    workers: int,
    servers: int,
    strike: Callable[[str], None],
) -> None:
    """Call `strike` with the name of each process that fails from now on, when it fails.

    The random failures of a node are a function of the seed, so they are the same for every
    strategy. If a run continues from a checkpoint, failures before the present time are left out.
    """
    after = kernel.now

    def wait(times: Iterator[Time], name: str) -> None:
        due = next(time for time in times if time >= after)
        kernel.call_at(max(due, kernel.now), strike_one_of, (times, name))

    def strike_one_of(series: tuple[Iterator[Time], str]) -> None:
        strike(series[1])
        wait(*series)

    for fault in faults.schedule:
        if (at := nanoseconds(fault.at_s)) >= after:
            kernel.call_at(at, strike, _name_of(fault))
    for law, role, nodes in (
        (faults.workers, "workers", map(worker_name, range(workers))),
        (faults.servers, "servers", map(server_name, range(servers))),
    ):
        for node, name in enumerate(nodes if law is not None else ()):
            assert law is not None
            wait(law.times(seed, f"failures of {role}", node), name)


def _name_of(fault: Fault) -> str:
    if fault.worker is not None:
        return worker_name(fault.worker)
    assert fault.server is not None
    return server_name(fault.server)
