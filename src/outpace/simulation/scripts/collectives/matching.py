"""A collective of the workers' scripts: the calls that belong to it, and their results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from outpace.engine.distributed.call import REMEDY, difference
from outpace.errors import RunError
from outpace.kernel import Future
from outpace.simulation.collective.values import results_of
from outpace.simulation.scripts.messages import Joined
from outpace.simulation.scripts.shared_memory import CallMemory
from outpace.support.units import Time
from outpace.sync.messages import worker_name


@dataclass(slots=True, eq=False)
class Part:
    """One worker's part in a collective.

    Attributes:
        number: number of the collective.
        joined: time when the worker joined.
        all_joined: time when all workers had joined.
        ended: time when the worker had the result.
    """

    worker: int
    call: Joined
    memory: CallMemory
    result: Future[None]  # the result is complete
    joined: Time = 0
    number: int = -1
    all_joined: Time = 0
    ended: Time = 0
    has_outputs: bool = False

    def given(self) -> Any:
        """Return the inputs, one after the other."""
        return self.memory.view(self.call.place, sum(self.call.parts), self.call.dtype)

    def give(self, result: Any) -> None:
        """Write the outputs into the memory of the call. result: None if there are no outputs."""
        if result is not None:
            self.has_outputs = True
            self.memory.view(self.call.place, result.numel(), self.call.dtype).copy_(result)


class Collective:
    """A collective and the parts of the workers in it.

    Attributes:
        missing: workers that have not joined it.
        parts: parts of the workers that have joined it, by number of the worker.
    """

    def __init__(self, number: int, missing: Iterable[int]) -> None:
        self.number, self.missing = number, set(missing)
        self.parts: dict[int, Part] = {}

    @property
    def by_rank(self) -> list[Part]:
        """The parts, in the order in which their values are combined."""
        return [part for _, part in sorted(self.parts.items())]

    @property
    def first(self) -> Joined:
        """The call of the lowest rank."""
        return self.by_rank[0].call

    @property
    def members(self) -> list[int]:
        """The workers, beginning with the root."""
        members, root = sorted(self.parts), max(0, self.first.root)
        return [*members[root:], *members[:root]]

    @property
    def size_bytes(self) -> int:
        """The bytes that determine its time: see `collective_rounds`."""
        sizes = [part.call.own_elements for part in self.parts.values()]
        return max(sizes) * self.first.dtype.itemsize

    def add(self, part: Part) -> None:
        """Let a worker join. Raises RunError if its call is another collective."""
        for other in self.parts.values():
            calls = {each.worker: (each.call.words(), each.call.where) for each in (other, part)}
            if found := difference(calls):
                raise RunError(
                    f"collective {self.number} differs between workers: {found}: {REMEDY}"
                )
        self.parts[part.worker] = part
        self.missing.discard(part.worker)

    def carry_out(self) -> None:
        """Write the result into the memory of each worker."""
        parts, first = self.by_rank, self.first
        values, sizes = [part.given() for part in parts], [part.call.parts for part in parts]
        results = results_of(first.kind, first.operation, first.root, values, sizes)
        for part, result in zip(parts, results, strict=True):
            part.give(result)

    def without(self, left: Sequence[int]) -> str:
        """Return an error text if these missing workers have left the run."""
        return (
            f"{_names(left)} left the run before collective {self.number}; {self._said}: {REMEDY}"
        )

    def __str__(self) -> str:
        return f"{self._said}; {_names(self.missing)} did not"

    @property
    def _said(self) -> str:
        parts = self.parts.values()
        return ", ".join(f"{worker_name(part.worker)} called {part.call}" for part in parts)


def carry_out_alone(part: Part, workers: int) -> None:
    """Write the result for a worker that runs alone, as if all others gave the same tensors."""
    call = part.call
    if call.root > 0 and call.kind in ("broadcast", "scatter"):
        return  # the tensors of another worker are not known
    values, sizes = [part.given()] * workers, [call.parts] * workers
    part.give(results_of(call.kind, call.operation, max(call.root, 0), values, sizes)[0])


def _names(workers: Iterable[int]) -> str:
    return ", ".join(map(worker_name, sorted(workers)))
