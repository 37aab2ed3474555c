"""Wire messages with which workers measure the network before the run begins (`net.probes`)."""

from __future__ import annotations

from outpace.real.net.messages import BlockHead
from outpace.sync.messages import Count, Index, WireMessage


class StartProbe(WireMessage, tag="start probe"):
    """The coordinator to a worker, before the run begins: measure the network.

    budget: ns that this may take.
    """

    budget: Count


class Probe(WireMessage, tag="probe"):
    """A worker to a server, before the run begins: answer with a block of the same size.

    number: counts this worker's probes of this server from 0.
    """

    number: Count
    block: BlockHead


class ProbeAnswer(WireMessage, tag="probe answer"):
    """A server's answer to a Probe."""

    shard: Index
    number: Count
    block: BlockHead


class ProbeDone(WireMessage, tag="probed"):
    """A worker has done what StartProbe asked for."""
