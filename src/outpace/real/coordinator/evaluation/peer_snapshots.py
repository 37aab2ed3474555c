"""Snapshots without servers: the common parameters, or the average of all workers' own.

Common parameters are requested from the first worker that is still there. A worker that leaves
sends what it has; the newest common parameters are the result of the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import torch

from outpace.blocks.block import Block, whole
from outpace.blocks.sums import tree_sum
from outpace.real.coordinator.evaluation.snapshots import Evaluate, Part, Snapshots, Tell
from outpace.real.net.messages import Snapshot


class PeerSnapshots(Snapshots):
    """own: True for the average of the workers' own; a lost worker is left out of it."""

    def __init__(self, workers: int, own: bool, tell: Tell, evaluate: Evaluate) -> None:
        super().__init__(0, tell, evaluate)
        self._workers, self._own = workers, own
        self._here = list(range(workers))
        self._left: dict[int, Part] = {}  # what workers sent when they left

    @property
    def _sources(self) -> Iterable[int]:
        return self._here if self._own else self._here[:1]

    def leave(self, message: Snapshot, block: Block) -> None:
        """Take the last snapshot of a worker."""
        self._left[message.shard] = message, block
        self.lose(message.shard)

    def lose(self, worker: int) -> None:
        """Request nothing more from this worker."""
        before = set(self._sources)
        if worker in self._here:
            self._here.remove(worker)
        for request in list(self._parts):
            self._ask_of(set(self._sources) - before, request)
            if self._here:  # else the last snapshots are used
                self._use(request)

    def ask_for_last(self) -> None:
        """Use what the workers sent when they left."""
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
