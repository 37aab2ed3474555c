"""The parameters of all servers, asked for by the coordinator and put together.

Nothing is sent unasked, so that parameters cannot heap up where evaluating is slower than
training: of the versions to evaluate two are asked for ahead, one that is under way while
the other is evaluated. A server that has passed a version answers with what it has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from outpace.messages import Block
from outpace.real.bodies import ReadAll, Snapshot

# Of blocks and shard 0's snapshot; to be told when it is done.
Evaluate: TypeAlias = Callable[[list[Block], Snapshot, Callable[[], None]], None]


class Snapshots:
    """Those of one run. `tell` reaches all servers; `evaluate` gets all but the last."""

    def __init__(self, servers: int, tell: Callable[[ReadAll], None], evaluate: Evaluate) -> None:
        self.final: list[Block] | None = None
        self.final_at: Snapshot | None = None  # shard 0's, with version and time
        self._servers, self._tell, self._evaluate = servers, tell, evaluate
        self._requests = self._last = 0
        self._every = 0
        self._parts: dict[int, dict[int, tuple[Snapshot, Block]]] = {}  # by request
        self._awaited: dict[int, int] = {}  # request -> the version it waits for
        self._asked: set[int] = set()  # by `ask_now`, and not evaluated yet

    def ask_now(self) -> None:
        """Evaluate the parameters there are, unless it was asked before and is still to come."""
        if not self._asked:
            self._asked.add(self._ask())

    def _ask(self, version: int = 0) -> int:
        """Ask for the parameters, as soon as a server has that version."""
        self._requests += 1
        self._parts[self._requests] = {}
        if version:
            self._awaited[self._requests] = version
        self._tell(ReadAll(self._requests, version))
        return self._requests

    def ask_for_last(self) -> None:
        """The next ones are the final ones."""
        self._last = self._ask()

    def ask_each(self, every: int) -> None:
        """From now on evaluate the versions that are multiples of this."""
        self._every = every
        for ahead in (1, 2):
            self._ask(ahead * every)

    def add(self, body: Snapshot, block: Block) -> None:
        """A server has answered. Without effect if nobody asked."""
        parts = self._parts.get(body.request)
        if parts is None:
            return
        parts[body.shard] = body, block
        if len(parts) < self._servers:
            return
        del self._parts[body.request]
        blocks = [parts[server][1] for server in range(self._servers)]
        first = parts[0][0]
        if body.request == self._last:
            self.final, self.final_at = blocks, first
            return
        self._evaluate(blocks, first, lambda: self._evaluated(body.request, first.version))

    def _evaluated(self, request: int, version: int) -> None:
        self._asked.discard(request)
        if self._awaited.pop(request, 0):
            newest = version // self._every * self._every
            self._ask(max([*self._awaited.values(), newest]) + self._every)
