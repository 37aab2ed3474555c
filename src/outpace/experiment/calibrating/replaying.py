"""The requests and answers of a part of a run, sent once more through the simulated network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from outpace.cluster.calibration import Floats
from outpace.cluster.network import NetworkLaw
from outpace.experiment.calibrating.measured import Measured
from outpace.kernel import Kernel
from outpace.simulation.network import network_of
from outpace.simulation.network.links import Parcel, Transfer
from outpace.support.units import SECOND, nanoseconds
from outpace.sync.messages import server_name, worker_name

_BLOCK: Final = 100  # consecutive requests that are replayed together
_BLOCKS: Final = 6  # evenly spaced over the run
_KNOWN: Final = (1e-4, 0.2)  # s, and share of the transit, by which an arrival may be uncertain


@dataclass(frozen=True, slots=True, eq=False)
class Messages:
    """Messages in the order of time; `seconds` is NaN where the arrival is not known.

    Messages of one worker and iteration have the same `step`; requests of one iteration to a
    server, or its answers, have the same `burst`.
    """

    ends: list[tuple[str, str]]
    step: NDArray[np.int64]
    burst: NDArray[np.int64]
    size_bytes: list[int]
    sent: Floats
    seconds: Floats


def messages_of(measured: Measured, first: int) -> Messages:
    """Return blocks of requests from an iteration on, and their answers."""
    requests = measured.requests
    assert requests is not None
    requests = requests.where(requests.iteration >= first).in_order()
    block = np.arange(len(requests)) // _BLOCK
    chosen = np.linspace(0, block.max(initial=0), _BLOCKS).round()
    requests = requests.where(np.isin(block, chosen))
    # The clocks of the workers, by that of the first server.
    reference = min((server for _, server in measured.offsets), default=0)
    clocks = [measured.offsets.get((n, reference), 0.0) for n in requests.worker.tolist()]
    workers = [worker_name(n) for n in requests.worker.tolist()]
    servers = [server_name(n) for n in requests.server.tolist()]
    there = _known(requests.sent, requests.received_after, requests.received)
    back = _known(requests.answered_end, requests.arrived_after, requests.arrived)
    ends = [*zip(workers, servers, strict=True), *zip(servers, workers, strict=True)]
    sizes = [*requests.sent_bytes.tolist(), *requests.answer_bytes.tolist()]
    sent = np.concatenate([requests.sent + clocks, requests.answered_end + clocks])
    seconds = np.concatenate([there, back])
    steps = np.stack([requests.worker, requests.iteration], axis=1)
    _, step = np.unique(np.concatenate([steps, steps]), axis=0, return_inverse=True)
    is_back = np.repeat([0, 1], len(requests))
    servers_twice, iterations = np.tile([requests.server, requests.iteration], 2)
    bursts = np.stack([servers_twice, iterations, is_back], axis=1)
    _, burst = np.unique(bursts, axis=0, return_inverse=True)
    order = [int(place) for place in np.argsort(sent, kind="stable") if not np.isnan(sent[place])]
    return Messages(
        [ends[place] for place in order],
        step.ravel()[order],
        burst.ravel()[order],
        [int(sizes[place]) for place in order],
        sent[order] - sent[order[0]] if order else sent[:0],
        seconds[order],
    )


def _known(sent: Floats, after: Floats, arrived: Floats) -> Floats:
    """Return transits; NaN where the receiver was busy, so that the arrival is uncertain."""
    transit = arrived - sent
    uncertain = arrived - np.maximum(np.where(np.isnan(after), arrived, after), sent)
    least, share = _KNOWN
    return np.where(uncertain <= np.maximum(least, share * transit), transit, np.nan)


def replay(law: NetworkLaw, messages: Messages) -> Floats:
    """Return how long each message takes in the simulated network, in s."""
    seconds = np.full(len(messages.ends), np.nan)
    kernel = Kernel()

    def delivered(transfer: Transfer) -> None:
        assert isinstance(transfer.message, Parcel)
        seconds[transfer.message.content] = (transfer.delivered - transfer.requested) / SECOND

    network = network_of(law, kernel, delivered)
    for name in sorted({name for ends in messages.ends for name in ends}):
        network.join(name)

    async def send() -> None:
        for place, (sender, receiver) in enumerate(messages.ends):
            wait = nanoseconds(float(messages.sent[place])) - kernel.now
            if wait > 0:
                await kernel.sleep(wait / SECOND)
            parcel = Parcel(place, messages.size_bytes[place])
            network.send(network.join(sender), receiver, parcel)
        await kernel.sleep(1e6)  # until all have arrived

    kernel.spawn(send(), "the replay")
    kernel.run()
    return seconds
