"""Random delays of messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import filter as matching
from typing import Final, Literal

from outpace.cluster.machines import Machines
from outpace.support.checks import not_negative, require
from outpace.support.randomness import RandomStream
from outpace.support.units import Time, nanoseconds
from outpace.sync.messages import Pull, Push, Reply, server_name

_TYPES: Final = {"push": Push, "pull": Pull, "reply": Reply}


@dataclass(frozen=True, slots=True)
class Delay:
    """With `probability` a message of this type arrives `seconds` later.

    Several rules that apply to a message add up.

    Args:
        nodes: Names or patterns; only messages from or to these workers and servers.
    """

    message: Literal["push", "pull", "reply"]
    probability: float
    seconds: float
    nodes: tuple[str, ...] = ("*",)

    def __post_init__(self) -> None:
        require(self.message in _TYPES, "message", f"one of {', '.join(_TYPES)}", self.message)
        require(0 <= self.probability <= 1, "probability", "from 0 to 1", self.probability)
        require(not_negative(self.seconds), "seconds", "a number from 0 to 1e9", self.seconds)
        require(bool(self.nodes), "nodes", "a list of names; leave it out for all", "empty")


class Lateness:
    """The delay of each message: a function of seed, rule, worker, iteration and server."""

    def __init__(self, rules: Sequence[Delay], seed: int, machines: Machines) -> None:
        self._servers = {server_name(m): m for m in range(machines.servers)}
        names = list(machines.of_nodes())
        self._rules = [
            _Rule(rule, f"delay {number}", seed, machines.servers, names)
            for number, rule in enumerate(rules)
        ]

    def of(self, sender: str, receiver: str, message: object) -> Time:
        """Return the delay of a message in nanoseconds.

        It is 0 for all messages that are not a push to, a pull from or a reply of a server.
        """
        if not isinstance(message, Push | Pull | Reply):
            return 0
        server = self._servers.get(sender if isinstance(message, Reply) else receiver)
        if server is None:  # the scheduler
            return 0
        late: Time = 0
        for rule in self._rules:
            if rule.applies(sender, receiver, message):
                late += rule.draw(message.worker, message.iteration, server)
        return late


class _Rule:
    """A `Delay` with its random numbers."""

    def __init__(
        self, rule: Delay, purpose: str, seed: int, servers: int, names: list[str]
    ) -> None:
        self._type = _TYPES[rule.message]
        self._probability, self._late = rule.probability, nanoseconds(rule.seconds)
        self._nodes = frozenset(name for key in rule.nodes for name in matching(names, key))
        self._purpose, self._seed, self._servers = purpose, seed, servers
        self._streams: dict[int, RandomStream] = {}  # by worker

    def applies(self, sender: str, receiver: str, message: Push | Pull | Reply) -> bool:
        return type(message) is self._type and (sender in self._nodes or receiver in self._nodes)

    def draw(self, worker: int, iteration: int, server: int) -> Time:
        stream = self._streams.get(worker)
        if stream is None:
            stream = RandomStream(
                self._seed, self._purpose, worker, lambda source, n: source.random(n)
            )
            self._streams[worker] = stream
        chance = stream[iteration * self._servers + server]
        return self._late if chance < self._probability else 0
