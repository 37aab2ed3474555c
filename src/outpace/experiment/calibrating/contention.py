"""Speed and contention of the network in the training, by replaying what was sent.

A probe travels alone. In the training messages meet, and share connections or processors. The
requests and answers of a part of the run are sent once more, at the recorded times, through the
simulated network, with either contention. Latencies and the time of a byte are multiplied by one
factor, so that messages take as long on average as they did: messages of one size, as most runs
send them, do not tell the two apart, and busy processors stretch both. Nodes with links of their
own have factors of their own. The contention is chosen that spreads the messages of an iteration at
a server as they were: the mean times of the fastest, second, ... of them are compared, in each
direction, since which of them comes first is chance, and iterations differ.

A message is late if it takes more than twice as long as the network with either contention says
once it is right for the median message, and at least 1 ms longer: its packets were lost, or a
process had to wait for a processor. Late messages do not count for the factors; they become random
`delays`, two for each direction, for the less late half and the later half of them. A worker that
waits for several messages waits for the latest, so a mean that contained them would not do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from outpace.cluster.calibration.independent import Floats
from outpace.cluster.delays import Delay
from outpace.cluster.network import LinkLaw, NetworkLaw, PairLaw
from outpace.experiment.calibrating.measured import Measured
from outpace.kernel import Kernel
from outpace.predict.recorded.table import Mask
from outpace.simulation.network import network_of
from outpace.simulation.network.links import Transfer
from outpace.support.units import SECOND, nanoseconds
from outpace.sync.messages import server_name, worker_name

_Contention: TypeAlias = Literal["serialised", "fair"]
_BLOCK: Final = 100  # consecutive requests that are replayed together
_BLOCKS: Final = 6  # evenly spaced over the run
_LEAST: Final = 20  # messages whose times are known
_RANGE: Final = 50.0  # factor by which times may change, either way
_STEPS: Final = 12  # of a bisection: to 0.2 %
_ROUNDS: Final = 2  # of the bisections, where there are several factors
_OTHERS: Final = ""  # the nodes without links of their own
_CLEARLY: Final = 0.95  # share of the error of `serialised` below which `fair` is chosen
_LATE_S: Final = 1e-3  # s; a smaller delay does not make a message late
_MOST_LATE: Final = 0.4  # share of the messages; more are no exceptions
_WORTH: Final = 0.05  # of the time of all messages, that late ones must take in addition
_KNOWN: Final = (1e-4, 0.2)  # s, and share of the transit, by which an arrival may be uncertain


@dataclass(frozen=True, slots=True, eq=False)
class Contention:
    """How messages of the training shared the network.

    Args:
        law: The law with its contention, latency and bandwidth in the training.
        slower: How many times as long messages take as alone, without the wait for others.
        error: Mean distance of recorded and replayed times, by place in the iteration at a
            server, over the mean time; without late messages.
        late: Share of the messages that were late.
    """

    law: NetworkLaw
    slower: float
    error: float
    late: float


@dataclass(frozen=True, slots=True, eq=False)
class _Messages:
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
    laws = [_scaled(law, contention) for contention in get_args(_Contention)]
    late = known & np.all([_is_late(each, messages, known) for each in laws], axis=0)
    excess = float(messages.seconds[late].sum())
    if excess < _WORTH * messages.seconds[known].sum() or late.sum() > _MOST_LATE * known.sum():
        late[:] = False
    serialised, fair = (_fitted(each, messages, known & ~late, late) for each in laws)
    return fair if fair.error < _CLEARLY * serialised.error else serialised


def _is_late(law: NetworkLaw, messages: _Messages, known: Mask) -> Mask:
    """Return which messages took much longer than the law says, if it is right for most."""
    usual = _scaled(law, law.contention, _factors(law, messages, known, np.median))
    replayed = _replayed(usual, messages)
    return np.asarray(messages.seconds > replayed + np.maximum(_LATE_S, replayed))


def _fitted(law: NetworkLaw, messages: _Messages, usual: Mask, late: Mask) -> Contention:
    """Return the best factors, and delays for late messages, for a law with one contention."""
    factors = _factors(law, messages, usual, np.mean)
    scaled = _scaled(law, law.contention, factors)
    replayed = _replayed(scaled, messages)
    from_server = np.array([sender.startswith("server") for sender, _ in messages.ends])
    off, delays = 0.0, []
    kinds: list[tuple[Literal["push", "reply"], Mask]] = [
        ("push", ~from_server),
        ("reply", from_server),
    ]
    for kind, chosen in kinds:
        mine = usual & chosen
        off += _apart(messages.burst[mine], messages.seconds[mine], replayed[mine])
        mine = (usual | late) & chosen
        excess = np.where(late, messages.seconds - replayed, 0.0)
        delays += _delays(kind, messages.step[mine], excess[mine])
    error = off / float(messages.seconds[usual].sum())
    share = float(late.sum() / (usual | late).sum())
    return Contention(replace(scaled, delays=tuple(delays)), factors[_OTHERS], error, share)


def _apart(burst: NDArray[np.int64], one: Floats, other: Floats) -> float:
    """Return how far two kinds of times are apart, by place within their bursts, in s in all."""
    ordered = [times[np.lexsort((times, burst))] for times in (one, other)]
    burst = np.sort(burst)
    first = np.searchsorted(burst, burst)
    place = np.arange(len(burst)) - first
    sums = [np.bincount(place, times) for times in ordered]
    return float(np.abs(sums[0] - sums[1]).sum())


def _delays(
    message: Literal["push", "reply"], step: NDArray[np.int64], late_s: Floats
) -> list[Delay]:
    """Return the random delays of one kind of message.

    The messages of one step are often late together, and delays are drawn for each by itself. What
    counts is the latest, so their probability is such that as many steps have a late message.

    Args:
        late_s: How late each message was; 0 if it was not.
    """
    _, of_step, sizes = np.unique(step, return_inverse=True, return_counts=True)
    latest = np.zeros(len(sizes))
    np.maximum.at(latest, of_step.ravel(), late_s)
    found = []
    for half in np.array_split(np.sort(latest[latest > 0]), 2):
        if len(half):
            probability = 1 - (1 - len(half) / len(sizes)) ** (1 / float(sizes.mean()))
            found.append(Delay(message, round(probability, 4), float(f"{half.mean():.4g}")))
    return found


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
    steps = np.stack([requests.worker, requests.iteration], axis=1)
    _, step = np.unique(np.concatenate([steps, steps]), axis=0, return_inverse=True)
    is_back = np.repeat([0, 1], len(requests))
    servers_twice, iterations = np.tile([requests.server, requests.iteration], 2)
    bursts = np.stack([servers_twice, iterations, is_back], axis=1)
    _, burst = np.unique(bursts, axis=0, return_inverse=True)
    order = [int(place) for place in np.argsort(sent, kind="stable") if not np.isnan(sent[place])]
    return _Messages(
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


def _factors(
    law: NetworkLaw,
    messages: _Messages,
    counted: Mask,
    middle_of: Callable[[Floats], np.floating[Any]],
) -> dict[str, float]:
    """Return the factors of times with which these messages take as long as they did.

    By bisection, one factor after the other: times grow with the factor.

    Args:
        middle_of: mean or median, in which they agree.

    Returns:
        The factor of each node with a link of its own, and that of all others.
    """
    of_group = {_OTHERS: counted.copy()}
    for name in law.nodes:
        touched = np.array([name in ends for ends in messages.ends])
        of_group[name] = counted & touched
        of_group[_OTHERS] &= ~touched
    factors = dict.fromkeys(of_group, 1.0)
    groups = [name for name, mine in of_group.items() if mine.sum() >= _LEAST]
    for name in groups * (1 if len(groups) == 1 else _ROUNDS):
        mine = of_group[name]
        recorded = float(middle_of(messages.seconds[mine]))
        low, high = -np.log(_RANGE), np.log(_RANGE)
        for _ in range(_STEPS):
            factors[name] = float(np.exp((low + high) / 2))
            replayed = _replayed(_scaled(law, law.contention, factors), messages)
            if float(middle_of(replayed[mine])) > recorded:
                high = np.log(factors[name])
            else:
                low = np.log(factors[name])
    return factors


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


def _scaled(
    law: NetworkLaw, contention: _Contention, factors: Mapping[str, float] | None = None
) -> NetworkLaw:
    """Return the law with latencies, and the times of a byte, multiplied by factors of nodes."""
    of_node = factors or {}
    others = of_node.get(_OTHERS, 1.0)

    def latency(value: float | None, factor: float = others) -> float | None:
        return None if value is None else float(f"{value * factor:.4g}")

    def rate(value: float | None, factor: float = others) -> float | None:
        return None if value is None else float(f"{max(1.0, value / factor):.4g}")

    nodes = {}
    for name, link in law.nodes.items():
        factor = of_node.get(name, 1.0)
        nodes[name] = LinkLaw(
            latency(link.latency_s, factor), rate(link.bandwidth_bytes_per_s, factor)
        )
    pairs = tuple(
        PairLaw(pair.between, latency(pair.latency_s), rate(pair.bandwidth_bytes_per_s))
        for pair in law.pairs
    )
    return NetworkLaw(
        latency(law.latency_s) or 0.0, rate(law.bandwidth_bytes_per_s), contention, nodes, pairs
    )
