"""Finds out which calls of the workers' scripts are the same collective, and computes its result.

The n-th calls of all workers are one collective, as in torch.distributed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from outpace.engine.distributed.sameness import REMEDY, difference, own_elements, words
from outpace.errors import RunError
from outpace.simulation.collective.values import results_of
from outpace.simulation.scripts.collectives.memory import CallMemory
from outpace.simulation.scripts.collectives.messages import Joined
from outpace.support.units import Time
from outpace.sync.messages import worker_name


@dataclass(slots=True, eq=False)
class Part:
    """One worker's part in a collective.

    Attributes:
        number: of the collective.
        joined: time when the worker joined.
        all_joined: time when all workers had joined.
        ended: time when the worker had the result.
        sender: of the message that a recv has received.
    """

    worker: int
    call: Joined
    memory: CallMemory
    joined: Time = 0
    number: int = -1
    all_joined: Time = 0
    ended: Time = 0
    has_outputs: bool = False
    sender: int = -1


@dataclass(slots=True, eq=False)
class Collective:
    """A collective. parts: those of the workers that have joined it, by number of the worker."""

    number: int
    parts: dict[int, Part] = field(default_factory=dict)

    @property
    def first(self) -> Joined:
        """The call of the lowest rank."""
        return self.parts[min(self.parts)].call

    @property
    def size_bytes(self) -> int:
        """The bytes that determine its time: see `collective_rounds`."""
        sizes = [_own_elements(part.call) for part in self.parts.values()]
        return max(sizes) * self.first.dtype.itemsize

    def carry_out(self) -> None:
        """Write the result into the memory of each worker."""
        parts = [part for _, part in sorted(self.parts.items())]
        values = [_value(part) for part in parts]
        first = self.first
        sizes = [part.call.parts for part in parts]
        results = results_of(first.kind, first.operation, first.root, values, sizes)
        for part, result in zip(parts, results, strict=True):
            _give(part, result)


def carry_out_alone(part: Part, workers: int) -> None:
    """Write the result for a worker that runs alone, as if all others gave the same tensors."""
    call = part.call
    if call.root > 0 and call.kind in ("broadcast", "scatter"):
        return  # what another worker would give is not known
    if call.kind in ("send", "recv"):
        return
    values, sizes = [_value(part)] * workers, [call.parts] * workers
    _give(part, results_of(call.kind, call.operation, max(call.root, 0), values, sizes)[0])


def _value(part: Part) -> Any:
    return part.memory.view(part.call.place, sum(part.call.parts), part.call.dtype)


def _give(part: Part, result: Any) -> None:
    if result is not None:
        call, part.has_outputs = part.call, True
        part.memory.view(call.place, result.numel(), call.dtype).copy_(result)


class Matching:
    """The collectives of a run that not all workers have joined."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._count = [0] * workers  # collectives that each has joined
        self._open: dict[int, Collective] = {}  # by number
        self._left: set[int] = set()
        self._ended: set[int] = set()  # at the end of the run

    def join(self, part: Part) -> Collective | None:
        """Let a worker join its next collective; return it if all workers have joined it.

        Raises:
            RunError: another worker has called another collective, or has left.
        """
        number = part.number = self._count[part.worker]
        self._count[part.worker] += 1
        found = self._open.setdefault(number, Collective(number))
        for other in found.parts.values():
            _require_same(number, other, part)
        found.parts[part.worker] = part
        self._require_present(found)
        if len(found.parts) < self._workers:
            return None
        return self._open.pop(number)

    def leave(self, worker: int) -> None:
        """Note that a worker joins no more collectives.

        Raises:
            RunError: another worker has joined a collective that this worker has not joined.
        """
        self._left.add(worker)
        for found in self._open.values():
            self._require_present(found)

    def end(self, worker: int) -> list[Part]:
        """Note that a worker joins no more collectives because the run ends.

        Returns:
            The parts of other workers in collectives that are therefore never carried out.
        """
        self._ended.add(worker)
        return [
            part
            for found in self._open.values()
            if worker not in found.parts
            for part in found.parts.values()
        ]

    def is_in_vain(self, part: Part) -> bool:
        """True if a worker that has ended is missing from a collective that this one has joined."""
        found = self._open.get(part.number)
        return found is not None and not self._ended <= found.parts.keys()

    def waiting(self) -> list[str]:
        """Describe the collectives that not all workers have joined."""
        return [
            f"{_named(list(found.parts.values()))}; "
            f"{_names(sorted(set(range(self._workers)) - found.parts.keys()))} did not"
            for found in self._open.values()
        ]

    def _require_present(self, found: Collective) -> None:
        missing = sorted(self._left - found.parts.keys())
        if missing:
            raise RunError(
                f"{_names(missing)} left the run before collective {found.number}; "
                f"{_named(list(found.parts.values()))}: {REMEDY}"
            )


def _named(parts: Sequence[Part]) -> str:
    return ", ".join(f"{worker_name(part.worker)} called {part.call}" for part in parts)


def _names(workers: Sequence[int]) -> str:
    return ", ".join(map(worker_name, workers))


def _own_elements(call: Joined) -> int:
    return own_elements(call.kind, sum(call.parts), call.elements)


def _require_same(number: int, one: Part, other: Part) -> None:
    """Raise RunError unless two workers' calls are parts of the same collective."""
    calls = {part.worker: (_words(part.call), part.call.where) for part in (one, other)}
    if found := difference(calls):
        raise RunError(f"collective {number} differs between workers: {found}: {REMEDY}")


def _words(call: Joined) -> str:
    elements = _own_elements(call)
    return words(call.kind, call.operation, elements, call.dtype, call.root, call.bucket)
