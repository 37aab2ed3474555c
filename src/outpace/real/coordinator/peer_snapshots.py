"""The parameters of a run without servers: those in common, or the average of all workers' own.

What is in common is asked of the first worker that is still there. A worker that leaves says
what it has then; of the common parameters the newest are the run's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import torch

from outpace.blocks.block import Block, whole
from outpace.blocks.sums import tree_sum
from outpace.real.coordinator.snapshots import Evaluate, Part, Snapshots, Tell
from outpace.real.net.messages import Snapshot


class PeerSnapshots(Snapshots):
    """own: is it the average? Whoever is lost is left out of it."""

    def __init__(self, workers: int, own: bool, tell: Tell, evaluate: Evaluate) -> None:
        super().__init__(0, tell, evaluate)
        self._workers, self._own = workers, own
        self._here = list(range(workers))
        self._left: dict[int, Part] = {}  # what they had then

    @property
    def _sources(self) -> Iterable[int]:
        return self._here if self._own else self._here[:1]

    def leave(self, message: Snapshot, block: Block) -> None:
        """That worker says what it has for the last time."""
        self._left[message.shard] = message, block
        self.lose(message.shard)

    def lose(self, worker: int) -> None:
        """Ask it no more."""
        before = set(self._sources)
        if worker in self._here:
            self._here.remove(worker)
        for request in list(self._parts):
            self._ask_of(set(self._sources) - before, request)
            if self._here:  # else the last words say it
                self._use(request)

    def ask_for_last(self) -> None:
        """Everybody has said it."""
        if self._left:
            blocks, self.final_at = self._put_together({})
            self.final = blocks

    def _put_together(self, parts: Mapping[int, Part]) -> tuple[list[Block], Snapshot]:
        if not self._own:
            known = parts or self._left
            at, block = max(known.values(), key=lambda part: (part[0].version, -part[0].shard))
            return [block], at
        everything = dict(sorted({**self._left, **parts}.items()))
        heads = [head for head, _ in everything.values()]
        blocks = [whole(block) for _, block in everything.values()]
        tensors = [block for block in blocks if isinstance(block, torch.Tensor)]
        mean: Block = tree_sum(tensors).div_(len(tensors)) if tensors else blocks[0]
        at = msgspec.structs.replace(
            heads[0],
            version=sum(head.version for head in heads) // self._workers,
            now=max(head.now for head in heads),
            applied=sum(head.applied for head in heads),
        )
        return [mean], at
