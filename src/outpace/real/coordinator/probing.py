"""The turns in which workers measure their network before the training."""

from __future__ import annotations

from outpace.config.experiment import Experiment
from outpace.real.coordinator.waiting import Announcements
from outpace.real.net import probes
from outpace.real.net.clock import RealClock
from outpace.real.net.messages import ProbeDone, StartProbe
from outpace.real.net.transport import Listener
from outpace.support.units import nanoseconds


async def probe(
    experiment: Experiment,
    workers: list[str],
    clock: RealClock,
    listener: Listener,
    announced: Announcements,
    limit_s: float,
) -> None:
    """Have each worker in turn measure the way to the servers, or all together all-reduces.

    Raises:
        RunError: a worker has not done so within `limit_s`.
    """
    if (strategy := experiment.peers) is not None:
        if not strategy.exchanges:
            for name in workers:
                listener.send(name, StartProbe(nanoseconds(probes.PROBE_S)))
            await announced.all(workers, ProbeDone, "probe", limit_s)
        return
    until = clock.now + nanoseconds(probes.PROBE_S)
    for n, name in enumerate(workers):
        budget = (until - clock.now) // (len(workers) - n)
        if budget <= 0:
            break
        listener.send(name, StartProbe(budget))
        await announced.all([name], ProbeDone, "probe the servers", limit_s)
