"""Speed and contention of the network in the training, by replaying what was sent.

A probe travels alone. In the training messages meet, and share connections or processors. The
requests and answers of a part of the run are sent once more, at the recorded times, through the
simulated network, with either contention. Latencies and the time of a byte are multiplied by one
factor, so that messages take as long on average as they did: messages of one size, as most runs
send them, do not tell the two apart, and busy processors stretch both. The contention whose times
are closer to the recorded ones is chosen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

import numpy as np

from outpace.cluster.calibration.independent import Floats
from outpace.cluster.network import LinkLaw, NetworkLaw, PairLaw
from outpace.experiment.calibrating.runs import Measured
from outpace.kernel import Kernel
from outpace.simulation.network import network_of
from outpace.simulation.network.links import Transfer
from outpace.support.units import SECOND, nanoseconds
from outpace.sync.messages import server_name, worker_name

_Contention: TypeAlias = Literal["serialised", "fair"]
_BLOCK: Final = 100  # consecutive requests that are replayed together
_BLOCKS: Final = 6  # evenly spaced over the run
_LEAST: Final = 20  # messages whose times are known
_RANGE: Final = 50.0  # factor by which times may change, either way
_STEPS: Final = 14  # of the bisection: to a factor of 50^(2/2^14)
_CLEARLY: Final = 0.95  # share of the error of `serialised` below which `fair` is chosen
_KNOWN: Final = (1e-4, 0.2)  # s, and share of the transit, by which an arrival may be uncertain


@dataclass(frozen=True, slots=True, eq=False)
class Contention:
    """How messages of the training shared the network.

    Args:
        law: The law with its contention, latency and bandwidth in the training.
        slower: How many times as long messages take as alone, without the wait for others.
        error: Mean absolute error of a message's time over its mean.
    """

    law: NetworkLaw
    slower: float
    error: float


@dataclass(frozen=True, slots=True, eq=False)
class _Messages:
    """Messages in the order of time; `seconds` is NaN where the arrival is not known."""

    ends: list[tuple[str, str]]
    size_bytes: list[int]
    sent: Floats
    seconds: Floats


def fit_contention(law: NetworkLaw, measured: Measured, first: int) -> Contention | None:
    """Return the contention of a run's messages; None if too few arrivals are known.

    Args:
        law: Of messages that travel alone.
        first: The first iteration that counts.
    """
    messages = _messages(measured, first)
    known = ~np.isnan(messages.seconds)
    if known.sum() < _LEAST or law.bandwidth_bytes_per_s is None:
        return None
    found = []
    for contention in get_args(_Contention):
        factor = _factor(_scaled(law, contention), messages)
        scaled = _scaled(law, contention, factor)
        off = np.abs(_replayed(scaled, messages) - messages.seconds)[known].mean()
        error = float(off / messages.seconds[known].mean())
        found.append(Contention(scaled, factor, error))
    serialised, fair = found
    return fair if fair.error < _CLEARLY * serialised.error else serialised


def _messages(measured: Measured, first: int) -> _Messages:
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
    order = [int(place) for place in np.argsort(sent, kind="stable") if not np.isnan(sent[place])]
    return _Messages(
        [ends[place] for place in order],
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


def _factor(law: NetworkLaw, messages: _Messages) -> float:
    """Return the factor of times with which messages take as long as they did, on average.

    By bisection: the mean grows with the factor.
    """
    known = ~np.isnan(messages.seconds)
    mean = float(messages.seconds[known].mean())
    low, high = -np.log(_RANGE), np.log(_RANGE)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        scaled = _scaled(law, law.contention, float(np.exp(middle)))
        if float(_replayed(scaled, messages)[known].mean()) > mean:
            high = middle
        else:
            low = middle
    return float(np.exp((low + high) / 2))


def _replayed(law: NetworkLaw, messages: _Messages) -> Floats:
    """Return how long each message takes in the simulated network, in s."""
    seconds = np.full(len(messages.ends), np.nan)
    kernel = Kernel()

    def delivered(transfer: Transfer) -> None:
        assert isinstance(transfer.message, int)
        seconds[transfer.message] = (transfer.delivered - transfer.requested) / SECOND

    network = network_of(law, kernel, delivered)
    for name in sorted({name for ends in messages.ends for name in ends}):
        network.add(name)

    async def send() -> None:
        for place, (sender, receiver) in enumerate(messages.ends):
            wait = nanoseconds(float(messages.sent[place])) - kernel.now
            if wait > 0:
                await kernel.sleep(wait / SECOND)
            network.send(sender, receiver, place, messages.size_bytes[place])
        await kernel.sleep(1e6)  # until all have arrived

    kernel.spawn(send(), "the replay")
    kernel.run()
    return seconds


def _scaled(law: NetworkLaw, contention: _Contention, factor: float = 1.0) -> NetworkLaw:
    """Return the law with all latencies, and the times of a byte, multiplied by the factor."""

    def latency(value: float | None) -> float | None:
        return None if value is None else float(f"{value * factor:.4g}")

    def rate(value: float | None) -> float | None:
        return None if value is None else float(f"{max(1.0, value / factor):.4g}")

    nodes = {
        name: LinkLaw(latency(link.latency_s), rate(link.bandwidth_bytes_per_s))
        for name, link in law.nodes.items()
    }
    pairs = tuple(
        PairLaw(pair.between, latency(pair.latency_s), rate(pair.bandwidth_bytes_per_s))
        for pair in law.pairs
    )
    return NetworkLaw(
        latency(law.latency_s) or 0.0, rate(law.bandwidth_bytes_per_s), contention, nodes, pairs
    )
