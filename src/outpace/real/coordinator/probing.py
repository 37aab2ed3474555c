"""The turns in which workers measure their network before the training."""

from __future__ import annotations

from typing import Final

from outpace.config.experiment import Experiment
from outpace.errors import RunError
from outpace.real.coordinator.waiting import Announcements
from outpace.real.net import probes
from outpace.real.net.clock import RealClock
from outpace.real.net.messages import Ready
from outpace.real.net.probes import StartProbe
from outpace.real.net.transport import Listener
from outpace.support.units import nanoseconds

_LIMIT_S: Final = 60.0  # for the probes of one worker, which take PROBE_S once it is connected


async def probe(
    experiment: Experiment,
    workers: list[str],
    clock: RealClock,
    listener: Listener,
    announced: Announcements,
    limit_s: float,
) -> None:
    """Have each worker in turn measure the way to the servers, or all together all-reduces.

    Each of them has said once that it is ready.

    Raises:
        RunError: a worker has not done so within `limit_s`, or within 60 s where it measures the
            way to the servers: it may not reach them.
    """
    if (strategy := experiment.peers) is not None:
        if not strategy.exchanges:
            for name in workers:
                listener.send(name, StartProbe(nanoseconds(probes.PROBE_S)))
            await announced.all(workers, Ready, "probe", limit_s, times=2)
        return
    until = clock.now + nanoseconds(probes.PROBE_S)
    for n, name in enumerate(workers):
        budget = (until - clock.now) // (len(workers) - n)
        if budget <= 0:
            break
        listener.send(name, StartProbe(budget))
        try:
            limit = min(limit_s, _LIMIT_S)
            await announced.all([name], Ready, "probe the servers", limit, times=2)
        except RunError as error:
            host = listener.endpoint.removeprefix("tcp://").rpartition(":")[0]
            raise RunError(
                f"{error}: its machine must be able to connect to {host}, at any port; see whether "
                "a firewall is in the way"
            ) from None
