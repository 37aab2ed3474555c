"""Speed and contention of the network in the training, by replaying what was sent.

A probe travels alone. In the training messages meet, and share connections or processors. The
requests and answers of a part of the run are sent once more, at the recorded times, through the
simulated network, with either contention. Latencies and the time of a byte are multiplied by one
factor, so that messages take as long on average as they did: messages of one size, as most runs
send them, do not tell the two apart, and busy processors stretch both. Machines with links of their
own have factors of their own, and so have messages within machines. The contention is chosen that
spreads the messages of an iteration at a server as they were: the mean times of the fastest,
second, ... of them are compared, in each direction, since which of them comes first is chance, and
iterations differ.

Nodes of one machine share its connection in the replay, too. So a message that was slow because it
met others is not taken for a slow connection.

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
import scipy.optimize
from numpy.typing import NDArray

from outpace.cluster.calibration import Floats
from outpace.cluster.delays import Delay
from outpace.cluster.network import LinkLaw, NetworkLaw, PairLaw
from outpace.experiment.calibrating.measured import Measured
from outpace.experiment.calibrating.replaying import Messages, messages_of, replay
from outpace.predict.recorded.table import Mask

_Contention: TypeAlias = Literal["serialised", "fair"]
_LEAST: Final = 20  # messages whose times are known
_RANGE: Final = 50.0  # factor by which times may change, either way
_PRECISION: Final = 1e-3  # of a factor, relative
_ROUNDS: Final = 2  # of the fits, where there are several factors
_OTHERS: Final = ""  # the nodes without links of their own
_WITHIN: Final = "within machines"  # messages over the loopback
_CLEARLY: Final = 0.95  # share of the error of `serialised` below which `fair` is chosen
_LATE_S: Final = 1e-3  # s; a smaller delay does not make a message late
_MOST_LATE: Final = 0.4  # share of the messages; more are no exceptions
_WORTH: Final = 0.05  # of the time of all messages, that late ones must take in addition


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


def fit_contention(law: NetworkLaw, measured: Measured, first: int) -> Contention | None:
    """Return the contention of a run's messages; None if too few arrivals are known.

    Args:
        law: Of messages that travel alone.
        first: The first iteration that counts.
    """
    messages = messages_of(measured, first)
    known = ~np.isnan(messages.seconds)
    if known.sum() < _LEAST or law.bandwidth_bytes_per_s is None:
        return None
    laws = [_scaled(law, contention) for contention in get_args(_Contention)]
    # Messages within a machine are never late: the simulated network delays none of them.
    late = known & ~_within(law, messages)
    late &= np.all([_is_late(each, messages, known) for each in laws], axis=0)
    excess = float(messages.seconds[late].sum())
    if excess < _WORTH * messages.seconds[known].sum() or late.sum() > _MOST_LATE * known.sum():
        late[:] = False
    serialised, fair = (_fitted(each, messages, known & ~late, late) for each in laws)
    return fair if fair.error < _CLEARLY * serialised.error else serialised


def _is_late(law: NetworkLaw, messages: Messages, known: Mask) -> Mask:
    """Return which messages took much longer than the law says, if it is right for most."""
    usual = _scaled(law, law.contention, _factors(law, messages, known, np.median))
    replayed = replay(usual, messages)
    return np.asarray(messages.seconds > replayed + np.maximum(_LATE_S, replayed))


def _fitted(law: NetworkLaw, messages: Messages, usual: Mask, late: Mask) -> Contention:
    """Return the best factors, and delays for late messages, for a law with one contention."""
    factors = _factors(law, messages, usual, np.mean)
    scaled = _scaled(law, law.contention, factors)
    replayed = replay(scaled, messages)
    from_server = np.array([sender.startswith("server") for sender, _ in messages.ends])
    off, delays = 0.0, []
    between = ~_within(law, messages)
    kinds: list[tuple[Literal["push", "reply"], Mask]] = [
        ("push", ~from_server),
        ("reply", from_server),
    ]
    for kind, chosen in kinds:
        mine = usual & chosen
        off += _apart(messages.burst[mine], messages.seconds[mine], replayed[mine])
        mine = (usual | late) & chosen & between
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


def _factors(
    law: NetworkLaw,
    messages: Messages,
    counted: Mask,
    middle_of: Callable[[Floats], np.floating[Any]],
) -> dict[str, float]:
    """Return the factors of times with which these messages take as long as they did.

    One factor after the other is the root of the difference: times grow with the factor.

    Args:
        middle_of: mean or median, in which they agree.

    Returns:
        The factor of each machine with a link of its own, that of the loopback, and that of all
        others.
    """
    within = _within(law, messages)
    of_group = {_OTHERS: counted & ~within, _WITHIN: counted & within}
    for name, machine in _machines(law).items():
        touched = np.array([name in ends for ends in messages.ends]) & ~within
        of_group[machine] = of_group.get(machine, False) | (counted & touched)
        of_group[_OTHERS] &= ~touched
    factors = dict.fromkeys(of_group, 1.0)
    groups = [name for name, mine in of_group.items() if mine.sum() >= _LEAST]
    for name in groups * (1 if len(groups) == 1 else _ROUNDS):
        mine = of_group[name]

        def beyond(log_factor: float, name: str = name, mine: Mask = mine) -> float:
            factors[name] = float(np.exp(log_factor))
            replayed = replay(_scaled(law, law.contention, factors), messages)
            return float(middle_of(replayed[mine]) / middle_of(messages.seconds[mine]) - 1)

        low, high = -np.log(_RANGE), np.log(_RANGE)
        if beyond(low) >= 0 or beyond(high) <= 0:
            continue  # the factor is at an end of its range
        root = scipy.optimize.brentq(beyond, low, high, xtol=_PRECISION)
        factors[name] = float(np.exp(root))
    return factors


def _scaled(
    law: NetworkLaw, contention: _Contention, factors: Mapping[str, float] | None = None
) -> NetworkLaw:
    """Return the law with latencies, and the times of a byte, multiplied by factors of machines."""
    of_machine = factors or {}
    others = of_machine.get(_OTHERS, 1.0)

    def latency(value: float | None, factor: float = others) -> float | None:
        return None if value is None else float(f"{value * factor:.4g}")

    def rate(value: float | None, factor: float = others) -> float | None:
        return None if value is None else float(f"{max(1.0, value / factor):.4g}")

    def scaled(link: LinkLaw, factor: float) -> LinkLaw:
        return LinkLaw(latency(link.latency_s, factor), rate(link.bandwidth_bytes_per_s, factor))

    machines = _machines(law)
    nodes = {
        name: scaled(link, of_machine.get(machines[name], 1.0)) for name, link in law.nodes.items()
    }
    pairs = tuple(
        PairLaw(pair.between, latency(pair.latency_s), rate(pair.bandwidth_bytes_per_s))
        for pair in law.pairs
    )
    return NetworkLaw(
        latency(law.latency_s) or 0.0,
        rate(law.bandwidth_bytes_per_s),
        contention,
        nodes,
        pairs,
        law.machines,
        scaled(law.loopback, of_machine.get(_WITHIN, 1.0)),
    )


def _machines(law: NetworkLaw) -> dict[str, str]:
    """Return what stands for the machine of each node with a link of its own."""
    return {name: law.places.get(name, name) for name in law.nodes}


def _within(law: NetworkLaw, messages: Messages) -> Mask:
    """Return which messages have both ends on one machine."""
    places = law.places
    pairs = ([places.get(end, end) for end in ends] for ends in messages.ends)
    return np.array([one == other for one, other in pairs], np.bool_)
