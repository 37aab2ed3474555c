"""Finds speed and contention of the network in the training by replaying its messages.

No other message is sent during a probe. In the training, messages are sent at the same time and
share connections or processors. The requests and answers of a part of the run are sent again
through the simulated network, at the recorded times and with either contention. Latencies and the
time per byte are multiplied by one factor, so that messages take as long on average as recorded.
There is one factor because most runs send messages of one size, which do not separate the two, and
because busy processors increase both. The chosen contention is the one that best reproduces how the
messages of an iteration at a server are spread: the mean times of the fastest, the second message
and so on are compared, in each direction, since their order is random, and iterations differ.

Nodes of one machine share its connection in the replay as well. So a message that was slow because
of other messages does not count as a slow connection.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

import numpy as np
import scipy.optimize

from outpace.cluster.calibration import Floats, Ints, Rows
from outpace.cluster.calibration.transits import rounded
from outpace.cluster.network import LinkLaw, NetworkLaw
from outpace.experiment.calibrating.runs import Run
from outpace.kernel import Kernel
from outpace.simulation.network import network_of
from outpace.simulation.network.links import Parcel, Transfer
from outpace.support.units import SECOND, nanoseconds
from outpace.sync.messages import server_name, worker_name

_Contention = Literal["serialised", "fair"]
_LEAST: Final = 20  # least number of messages with known times
_RANGE: Final = 50.0  # factor by which times may change, either way
_PRECISION: Final = 1e-3  # relative precision of the factor
_CLEARLY: Final = 0.95  # share of the error of `serialised` below which `fair` is chosen
_BLOCK: Final = 100  # number of consecutive requests that are replayed together
_BLOCKS: Final = 6  # number of such blocks, evenly spaced over the run
_KNOWN: Final = (1e-4, 0.2)  # s, and share of the transit, up to which an arrival may be uncertain


@dataclass(frozen=True, slots=True, eq=False)
class Contention:
    """How messages of the training share the network.

    Args:
        law: The law with its contention, latency and bandwidth in the training.
        slower: Factor of the times of messages, compared with messages alone, without waits for
            others.
        error: Mean difference of recorded and replayed times, by place in the iteration at a
            server, divided by the mean time.
    """

    law: NetworkLaw
    slower: float
    error: float


@dataclass(frozen=True, slots=True, eq=False)
class _Messages(Rows):
    """Messages. `burst` is equal for all requests of an iteration to a server, or all answers."""

    sender: np.ndarray
    receiver: np.ndarray
    burst: Ints
    size_bytes: Ints
    sent: Floats
    seconds: Floats  # NaN if the arrival is not known


def fit_contention(law: NetworkLaw, run: Run, first: int) -> Contention | None:
    """Return the contention of the messages of a run; None if too few arrivals are known.

    Args:
        law: Law of messages during which no other message is sent.
        first: The first iteration that counts.
    """
    messages = _messages(run, first)
    known = ~np.isnan(messages.seconds)
    if known.sum() < _LEAST or law.bandwidth_bytes_per_s is None:
        return None
    serialised, fair = (_fitted(law, kind, messages, known) for kind in get_args(_Contention))
    return fair if fair.error < _CLEARLY * serialised.error else serialised


def _fitted(
    law: NetworkLaw, kind: _Contention, messages: _Messages, known: np.ndarray
) -> Contention:
    """Return the best factor for a law with this contention."""
    recorded = messages.seconds[known]

    def replayed(log_factor: float) -> Floats:
        scaled = _scaled(law, float(np.exp(log_factor)), kind)
        return np.asarray(_replayed(scaled, messages)[known])

    found = scipy.optimize.minimize_scalar(
        lambda log: abs(np.log(replayed(log).mean() / recorded.mean())),
        bounds=(-np.log(_RANGE), np.log(_RANGE)),
        method="bounded",
        options={"xatol": _PRECISION},
    )
    error = _apart(messages.burst[known], recorded, replayed(found.x)) / float(recorded.sum())
    factor = float(np.exp(found.x))
    return Contention(_scaled(law, factor, kind), factor, error)


def _apart(burst: Ints, one: Floats, other: Floats) -> float:
    """Return the total difference of two lists of times, by place within their bursts, in s."""
    ordered = [times[np.lexsort((times, burst))] for times in (one, other)]
    burst = np.sort(burst)
    place = np.arange(len(burst)) - np.searchsorted(burst, burst)
    sums = [np.bincount(place, times) for times in ordered]
    return float(np.abs(sums[0] - sums[1]).sum())


def _scaled(law: NetworkLaw, factor: float, contention: _Contention) -> NetworkLaw:
    """Return the law with latencies and times per byte multiplied by a factor."""

    def link(found: LinkLaw | NetworkLaw) -> LinkLaw:
        latency_s, rate = found.latency_s, found.bandwidth_bytes_per_s
        return LinkLaw(
            None if latency_s is None else rounded(factor * latency_s),
            None if rate is None else rounded(max(1.0, rate / factor)),
        )

    usual = link(law)
    return replace(
        law,
        latency_s=usual.latency_s or 0.0,
        bandwidth_bytes_per_s=usual.bandwidth_bytes_per_s,
        contention=contention,
        nodes={name: link(own) for name, own in law.nodes.items()},
        loopback=link(law.loopback),
    )


def _messages(run: Run, first: int) -> _Messages:
    """Return blocks of requests from an iteration on, and their answers, in the order of time."""
    assert run.measured is not None
    requests, offsets = run.measured.requests, run.measured.offsets
    requests = requests.where(requests.iteration >= first).in_order()
    block = np.arange(len(requests)) // _BLOCK
    requests = requests.where(np.isin(block, np.linspace(0, block.max(initial=0), _BLOCKS).round()))
    # The clocks of the workers, compared with the first server's clock.
    reference = min((server for _, server in offsets), default=0)
    clocks = [offsets.get((n, reference), 0.0) for n in requests.worker.tolist()]
    workers = np.array([worker_name(n) for n in requests.worker.tolist()], str)
    servers = np.array([server_name(n) for n in requests.server.tolist()], str)
    bursts = np.stack([requests.server, requests.iteration], axis=1)
    _, burst = np.unique(bursts, axis=0, return_inverse=True)
    there = _known(requests.sent, requests.received_after, requests.received)
    back = _known(requests.answered_end, requests.arrived_after, requests.arrived)
    sent = np.concatenate([requests.sent + clocks, requests.answered_end + clocks])
    both = _Messages(
        np.concatenate([workers, servers]),
        np.concatenate([servers, workers]),
        np.concatenate([2 * burst.ravel(), 2 * burst.ravel() + 1]),
        np.concatenate([requests.sent_bytes, requests.answer_bytes]),
        sent - np.fmin.reduce(sent, initial=np.inf),
        np.concatenate([there, back]),
    )
    order = np.argsort(both.sent, kind="stable")
    return both.where(order[: int((~np.isnan(both.sent)).sum())])  # NaN is last


def _known(sent: Floats, after: Floats, arrived: Floats) -> Floats:
    """Return transits; NaN if the receiver was busy, so that the arrival is uncertain."""
    transit = arrived - sent
    uncertain = arrived - np.maximum(np.where(np.isnan(after), arrived, after), sent)
    least, share = _KNOWN
    return np.where(uncertain <= np.maximum(least, share * transit), transit, np.nan)


def _replayed(law: NetworkLaw, messages: _Messages) -> Floats:
    """Return how long each message takes in the simulated network, in s."""
    seconds = np.full(len(messages.sent), np.nan)
    kernel = Kernel()

    def delivered(transfer: Transfer) -> None:
        assert isinstance(transfer.message, Parcel)
        seconds[transfer.message.content] = (transfer.delivered - transfer.requested) / SECOND

    network = network_of(law, kernel, delivered)
    for name in np.unique([messages.sender, messages.receiver]).tolist():
        network.join(name)
    senders, receivers = messages.sender.tolist(), messages.receiver.tolist()
    times, sizes = messages.sent.tolist(), messages.size_bytes.tolist()

    async def send() -> None:
        for place, sent in enumerate(times):
            wait = nanoseconds(sent) - kernel.now
            if wait > 0:
                await kernel.sleep(wait / SECOND)
            parcel = Parcel(place, sizes[place])
            network.send(network.join(senders[place]), receivers[place], parcel)
        await kernel.sleep(1e6)  # run until all messages have arrived

    kernel.spawn(send(), "the replay")
    kernel.run()
    return seconds
