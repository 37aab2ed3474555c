"""The network in virtual time."""

from __future__ import annotations

from outpace.cluster.machines import Machines
from outpace.cluster.network import NetworkLaw
from outpace.kernel import Kernel
from outpace.simulation.network.fair import FairNetwork
from outpace.simulation.network.links import Log
from outpace.simulation.network.network import Network
from outpace.simulation.network.serialised import SerialisedNetwork


def network_of(
    law: NetworkLaw | None,
    kernel: Kernel,
    log: Log | None = None,
    *,
    machines: Machines | None = None,
    seed: int = 0,
) -> Network:
    """Return a network with the contention of the law. Arguments as for `Network`."""
    fair = law is not None and law.contention == "fair"
    kind: type[Network] = FairNetwork if fair else SerialisedNetwork
    return kind(kernel, law, log, machines=machines, seed=seed)
