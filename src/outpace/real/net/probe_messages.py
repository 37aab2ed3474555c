"""Wire messages with which workers measure the network before the run begins (`net.probes`)."""

from __future__ import annotations

from outpace.real.net.messages import BlockHead
from outpace.sync.messages import Count, Index, WireMessage


class StartProbe(WireMessage, tag="start probe"):
    """The coordinator to a worker that is Ready: measure the network, and say Ready again.

    budget: ns that this may take.
    """

    budget: Count


class Probe(WireMessage, tag="probe"):
    """A worker to a server, before the run begins, and the server's answer: the same message.

    number: counts this worker's probes of this server from 0.
    """

    shard: Index
    number: Count
    block: BlockHead
