"""Random delays of messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import filter as matching
from typing import Annotated, Final, Literal

from pydantic import Field

from outpace.cluster.machines import Machines
from outpace.support.checks import NotNegative, Probability, check_ranges
from outpace.support.randomness import RandomStream
from outpace.support.units import Time, nanoseconds
from outpace.sync.messages import Pull, Push, Reply, server_name

_TYPES: Final = {"push": Push, "pull": Pull, "reply": Reply}


@dataclass(frozen=True, slots=True)
class Delay:
    """A rule by which a message of this type arrives `seconds` later, with `probability`.

    If several rules apply to a message, their delays add up.

    Attributes:
        nodes: Names or patterns; only messages from or to these workers and servers.
        message: type of message that is delayed.
        probability: probability of a delay, for each message.
        seconds: the delay; the delays of several rules add up.
    """

    message: Literal["push", "pull", "reply"]
    probability: Probability
    seconds: NotNegative
    nodes: Annotated[tuple[str, ...], Field(min_length=1)] = ("*",)

    def __post_init__(self) -> None:
        check_ranges(self)


class Lateness:
    """The delay of each message: a function of seed, rule, worker, iteration and server."""

    def __init__(self, rules: Sequence[Delay], seed: int, machines: Machines) -> None:
        names = list(machines.of_nodes())
        self._servers = {server_name(m): m for m in range(machines.servers)}
        self._rules = [
            (rule, frozenset(name for key in rule.nodes for name in matching(names, key)))
            for rule in rules
        ]
        self._seed = seed
        self._streams: dict[tuple[int, int], RandomStream] = {}  # by rule and worker

    def of(self, sender: str, receiver: str, message: object) -> Time:
        """Return the delay of a message in nanoseconds.

        It is 0 for messages other than pushes, pulls and replies of servers.
        """
        if not isinstance(message, Push | Pull | Reply):
            return 0
        server = self._servers.get(sender if isinstance(message, Reply) else receiver)
        if server is None:  # the scheduler
            return 0
        late: Time = 0
        for number, (rule, nodes) in enumerate(self._rules):
            applies = type(message) is _TYPES[rule.message] and (
                sender in nodes or receiver in nodes
            )
            if applies and self._chance(number, message, server) < rule.probability:
                late += nanoseconds(rule.seconds)
        return late

    def _chance(self, rule: int, message: Push | Pull | Reply, server: int) -> float:
        """Return the random number in [0, 1) of a rule and a message."""
        stream = self._streams.get((rule, message.worker))
        if stream is None:
            stream = RandomStream(
                self._seed, f"delay {rule}", message.worker, lambda source, n: source.random(n)
            )
            self._streams[rule, message.worker] = stream
        return stream[message.iteration * len(self._servers) + server]
