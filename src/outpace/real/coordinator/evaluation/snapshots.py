"""Snapshots of the parameters: the coordinator asks for them and puts them together.

Nothing is sent without a request, so parameters cannot pile up if evaluating is slower than
training. Of the versions to evaluate two are requested ahead: one travels while the other is
evaluated. A process that has passed a requested version answers with the version it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from outpace.blocks.block import Block
from outpace.kernel import Kernel
from outpace.real.net.messages import Snapshot, TakeSnapshot

# Called with blocks, the snapshot that stands for them, and what to call when it is done.
Evaluate: TypeAlias = Callable[[list[Block], Snapshot, Callable[[], None]], None]
Part: TypeAlias = tuple[Snapshot, Block]
Tell: TypeAlias = Callable[[int, TakeSnapshot], None]  # the number of a source


class Snapshots:
    """Snapshots of servers, each of which owns a part.

    evaluate: called with all but the final parameters.
    """

    def __init__(self, servers: int, tell: Tell, evaluate: Evaluate) -> None:
        self.final: list[Block] | None = None
        self.final_at: Snapshot | None = None  # with version and time
        self._servers, self._tell, self._evaluate = range(servers), tell, evaluate
        self._requests = self._last = 0
        self._every = 0
        self._parts: dict[int, dict[int, Part]] = {}  # by request and source
        self._awaited: dict[int, int] = {}  # request -> the version it waits for
        self._asked: set[int] = set()  # by `ask_now`, and not evaluated yet

    @property
    def _sources(self) -> Iterable[int]:
        """The processes whose parts make up the parameters, by number."""
        return self._servers

    def _put_together(self, parts: Mapping[int, Part]) -> tuple[list[Block], Snapshot]:
        """Return the parameters, and the snapshot that stands for them."""
        return [parts[server][1] for server in self._servers], parts[0][0]

    def schedule(self, kernel: Kernel, every_s: float | None, every_updates: int | None) -> None:
        """From now on have the parameters evaluated at these intervals."""
        if every_s is not None:
            kernel.spawn(self._ask_every(kernel, every_s), "evaluation", daemon=True)
        if every_updates is not None:
            self.ask_each(every_updates)

    async def _ask_every(self, kernel: Kernel, period_s: float) -> None:
        while True:
            await kernel.sleep(period_s)
            self.ask_now()

    def ask_now(self) -> None:
        """Have the current parameters evaluated, unless such an evaluation is under way."""
        if not self._asked:
            self._asked.add(self._ask())

    def _ask(self, version: int = 0) -> int:
        """Ask for the parameters as soon as each source has this version; return the request."""
        self._requests += 1
        self._parts[self._requests] = {}
        if version:
            self._awaited[self._requests] = version
        self._ask_of(self._sources, self._requests)
        return self._requests

    def _ask_of(self, sources: Iterable[int], request: int) -> None:
        for source in sources:
            self._tell(source, TakeSnapshot(request, self._awaited.get(request, 0)))

    def ask_for_last(self) -> None:
        """Ask for the final parameters."""
        self._last = self._ask()

    def ask_each(self, every: int) -> None:
        """From now on have the versions evaluated that are multiples of `every`."""
        self._every = every
        for ahead in (1, 2):
            self._ask(ahead * every)

    def add(self, message: Snapshot, block: Block) -> None:
        """Take an answer; no effect if it was not asked for."""
        if message.request in self._parts:
            self._parts[message.request][message.shard] = message, block
            self._use(message.request)

    def _use(self, request: int) -> None:
        """Evaluate or keep the parameters of this request if all parts have come."""
        parts = self._parts[request]
        if not parts.keys() >= set(self._sources):
            return
        del self._parts[request]
        blocks, at = self._put_together(parts)
        if request == self._last:
            self.final, self.final_at = blocks, at
            return
        self._evaluate(blocks, at, lambda: self._evaluated(request, at.version))

    def _evaluated(self, request: int, version: int) -> None:
        self._asked.discard(request)
        if self._awaited.pop(request, 0):
            newest = version // self._every * self._every
            self._ask(max([*self._awaited.values(), newest]) + self._every)
