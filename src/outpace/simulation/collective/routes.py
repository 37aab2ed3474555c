"""Routes of the messages of an average in virtual time.

With `serialised` contention a worker sends one message and receives one at a time, so rounds follow
each other, and each takes as long as its slowest message. `Formula` computes these times. With
`fair` contention connections are shared, and `Messages` sends the messages. With either contention,
`Messages` is also used if several averages can share the connection of a machine with several
workers. All-reduces with a separate cost (`network.all_reduce`) always use `Formula`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, TypeAlias

from outpace.cluster.collective_rounds import Pattern, rounds_of
from outpace.cluster.collectives import Costs
from outpace.kernel import Future, Kernel, Walker
from outpace.simulation.network.links import Node
from outpace.simulation.network.network import Network
from outpace.sync.messages import worker_name

_Turn: TypeAlias = tuple[list[int], int]  # receivers of a member, and the number of its senders
Finished: TypeAlias = Callable[[int], None]  # called when a worker has the result


class Chunk(Future[None]):
    """A message with a part of the value. It is done when the receiver has it."""

    __slots__ = ("nbytes",)
    is_counted: ClassVar[bool] = True
    may_have_bytes: ClassVar[bool] = True

    def __init__(self, kernel: Kernel, name: str, nbytes: int) -> None:
        super().__init__(kernel, name)
        self.nbytes = nbytes


class Formula:
    """Ends each average after the time that the formula gives."""

    def __init__(self, kernel: Kernel, network: Network) -> None:
        self._kernel, self._network, self._costs = kernel, network, Costs(network.paths)
        self._under_way: set[_Average] = set()

    def end(self) -> None:
        """Forget the averages that are running."""
        self._under_way.clear()

    def begin(
        self, pattern: Pattern, members: Sequence[int], size_bytes: int, finished: Finished
    ) -> None:
        """Begin an average of `size_bytes` bytes among these workers."""
        duration, messages, sent = self._costs.of(pattern, members, size_bytes)
        self._network.messages += messages
        self._network.bytes_sent += sent
        average = _Average(members, finished)
        self._under_way.add(average)
        self._kernel.call_at(self._kernel.now + duration, self._end, average)

    def _end(self, average: _Average) -> None:
        """End an average, unless all workers have begun again."""
        if average in self._under_way:
            self._under_way.remove(average)
            for member in average.members:
                average.finished(member)


@dataclass(frozen=True, slots=True, eq=False)
class _Average:
    """A running average."""

    members: Sequence[int]
    finished: Finished


class Messages:
    """Sends messages; a worker begins a round when its messages of the last round have arrived."""

    def __init__(self, kernel: Kernel, network: Network) -> None:
        self._kernel, self._network = kernel, network
        self._walkers: set[Walker] = set()

    def end(self) -> None:
        """Send no more messages, because all workers begin again."""
        for walker in self._walkers:
            self._kernel.end(walker)

    def begin(
        self, pattern: Pattern, members: Sequence[int], size_bytes: int, finished: Finished
    ) -> None:
        """Begin an average of `size_bytes` bytes among these workers."""
        parts, chunks = _parts_of(pattern, tuple(members))
        size = -(-size_bytes // chunks)  # whole bytes
        for member, name in [(each, worker_name(each)) for each in members]:
            node = self._network.join(name)
            walker = self._kernel.spawn(
                self._take_part(member, node, parts[member], size, finished),
                f"the messages of {name}",
                daemon=True,
            )
            self._walkers = {each for each in self._walkers if not each.done} | {walker}

    async def _take_part(
        self,
        member: int,
        node: Node,
        part: Sequence[_Turn],
        size: int,
        finished: Finished,
    ) -> None:
        for receivers, sent_to_it in part:
            sent = [Chunk(self._kernel, f"a chunk of {node.name}", size) for _ in receivers]
            for receiver, chunk in zip(receivers, sent, strict=True):
                self._network.send(node, worker_name(receiver), chunk)
            for _ in range(sent_to_it):
                (await node.mailbox.get()).set(None)
            for chunk in sent:
                await chunk
        finished(member)


Route: TypeAlias = Formula | Messages


@lru_cache(maxsize=64)
def _parts_of(pattern: Pattern, members: tuple[int, ...]) -> tuple[dict[int, list[_Turn]], int]:
    """Return each member's turns, round by round, and the number of chunks."""
    rounds, chunks = rounds_of(pattern, members)
    parts: dict[int, list[_Turn]] = {
        member: [
            ([to for sender, to in once if sender == member], sum(to == member for _, to in once))
            for once in rounds
        ]
        for member in members
    }
    return parts, chunks
