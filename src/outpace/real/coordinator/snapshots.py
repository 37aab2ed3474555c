"""Snapshots of the parameters: the coordinator asks for them and puts them together.

Nothing is sent without a request, so parameters cannot pile up if evaluating is slower than
training. Two of the versions to evaluate are requested ahead: one is sent while the other is
evaluated. A process that has passed a requested version answers with its present version.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

import msgspec
import torch

from outpace.blocks.block import Block, whole
from outpace.blocks.sums import tree_sum
from outpace.kernel import Kernel
from outpace.real.net.messages import Snapshot, TakeSnapshot
from outpace.sync.messages import WireMessage

# Called with blocks, the snapshot that represents them, and a function to call when it is done.
Evaluate: TypeAlias = Callable[[list[Block], Snapshot, Callable[[], None]], None]
Send: TypeAlias = Callable[[str, WireMessage], None]


class Snapshots:
    """Snapshots of servers; each server owns a part of the parameters.

    names: names of the servers, in order. evaluate: called with all parameters except the final
    ones.
    """

    def __init__(self, names: Sequence[str], send: Send, evaluate: Evaluate) -> None:
        self.final: tuple[list[Block], Snapshot] | None = None  # parts with version and time
        self._names = dict(enumerate(names))
        self._send, self._evaluate = send, evaluate
        self._requests = self._last = self._every = 0
        self._parts: dict[int, dict[int, Snapshot]] = {}  # parts by request and source
        self._awaited: dict[int, int] = {}  # request -> version that it waits for
        self._timed = 0  # a request of `evaluate.every_s` that is not evaluated yet

    @property
    def _sources(self) -> Collection[int]:
        """The processes whose parts make up the parameters, by number."""
        return list(self._names)

    def _put_together(self, parts: Mapping[int, Snapshot]) -> tuple[list[Block], Snapshot]:
        """Return the parameters, and the snapshot that represents them."""
        return [parts[server].block for server in self._sources], parts[0]

    def schedule(
        self, kernel: Kernel, every_s: float | None, every_updates: int | None, after: int = 0
    ) -> None:
        """Evaluate the parameters at these intervals from now on.

        after: the present version of the parameters.
        """
        if every_s is not None:
            kernel.spawn(self._ask_every(kernel, every_s), "evaluation", daemon=True)
        if every_updates is not None:
            self._every = every_updates
            for ahead in (1, 2):
                self._ask((after // every_updates + ahead) * every_updates)

    async def _ask_every(self, kernel: Kernel, period_s: float) -> None:
        while True:
            await kernel.sleep(period_s)
            if not self._timed:  # the last evaluation is done
                self._timed = self._ask()

    def _ask(self, version: int = 0) -> int:
        """Ask for the parameters as soon as each source has this version; return the request."""
        self._requests += 1
        self._parts[self._requests] = {}
        if version:
            self._awaited[self._requests] = version
        self._ask_of(self._sources, self._requests)
        return self._requests

    def _ask_of(self, sources: Collection[int], request: int) -> None:
        for source in sources:
            ask = TakeSnapshot(request, self._awaited.get(request, 0))
            self._send(self._names[source], ask)

    def ask_for_last(self) -> None:
        """Ask for the final parameters."""
        self._last = self._ask()

    def fetch(self, name: str) -> None:
        """Send the final parameters to a worker; servers have sent theirs already."""

    def add(self, message: Snapshot) -> None:
        """Handle an answer; no effect if it was not asked for."""
        if message.request in self._parts:
            self._parts[message.request][message.shard] = message
            self._use(message.request)

    def _use(self, request: int) -> None:
        """Evaluate or keep the parameters of this request if all parts have arrived."""
        parts = self._parts[request]
        if not parts.keys() >= set(self._sources):
            return
        del self._parts[request]
        blocks, at = self._put_together(parts)
        if request == self._last:
            self.final = blocks, at
        else:
            self._evaluate(blocks, at, lambda: self._evaluated(request, at.version))

    def _evaluated(self, request: int, version: int) -> None:
        if request == self._timed:
            self._timed = 0
        if self._awaited.pop(request, 0):
            newest = version // self._every * self._every
            self._ask(max([*self._awaited.values(), newest]) + self._every)


class PeerSnapshots(Snapshots):
    """Snapshots without servers: the common parameters, or the average of the workers' own models.

    Common parameters are requested from the first worker that is still there. A worker that leaves
    sends its parameters; the newest common parameters are the result of the run.

    own: True for the average of the workers' own models, which leaves out lost workers.
    """

    def __init__(self, names: Sequence[str], own: bool, send: Send, evaluate: Evaluate) -> None:
        super().__init__(names, send, evaluate)
        self._own = own
        self._here = list(range(len(names)))
        self._left: dict[int, Snapshot] = {}  # what workers sent when they left
        self._newest = 0  # time when a worker had the last complete parameters
        self._awaiting: list[str] = []  # workers that want the final parameters

    @property
    def _sources(self) -> Collection[int]:
        return self._here if self._own else self._here[:1]

    def add(self, message: Snapshot) -> None:
        """Handle an answer, or the last snapshot of a worker that leaves."""
        if message.request:
            super().add(message)
        else:
            self._left[message.shard] = message
            self.lose(message.shard)

    def lose(self, worker: int) -> None:
        """Do not request any more snapshots from this worker."""
        before = set(self._sources)
        if worker in self._here:
            self._here.remove(worker)
        for request in list(self._parts):
            self._ask_of(set(self._sources) - before, request)
            if self._here:  # otherwise the last snapshots are used
                self._use(request)

    def ask_for_last(self) -> None:
        """Use the snapshots that workers sent when they left."""
        if self._left:
            self.final = self._put_together({})
            for name in self._awaiting:
                self.fetch(name)

    def fetch(self, name: str) -> None:
        """Send the final parameters to a worker that has left, at once or when they are known."""
        if self.final is None:
            self._awaiting.append(name)
        else:
            (block,), at = self.final
            self._send(name, msgspec.structs.replace(at, block=block))

    def _put_together(self, parts: Mapping[int, Snapshot]) -> tuple[list[Block], Snapshot]:
        if not self._own:
            known = parts or self._left
            at = max(known.values(), key=lambda part: (part.version, -part.shard))
            # Another worker, or this one, may have been asked for these parameters later.
            self._newest = max(self._newest, *(part.now for part in known.values()))
            return [at.block], msgspec.structs.replace(at, now=self._newest)
        everything = [part for _, part in sorted({**self._left, **parts}.items())]
        blocks = [whole(part.block) for part in everything]
        tensors = [block for block in blocks if isinstance(block, torch.Tensor)]
        mean: Block = tree_sum(tensors).div_(len(tensors)) if tensors else blocks[0]
        at = msgspec.structs.replace(
            everything[0],
            version=sum(part.version for part in everything) // len(self._names),
            now=max(part.now for part in everything),
            applied=sum(part.applied for part in everything),
        )
        return [mean], at
