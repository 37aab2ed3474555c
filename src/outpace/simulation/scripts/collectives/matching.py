"""Finds out which calls of the workers' scripts belong together, and computes their results.

The n-th calls of all workers are one collective, as in torch.distributed. A `send` and a `recv` are
one message if their ranks and tags fit. It begins when both workers have called, as with Gloo,
whose send waits for the receiver. Messages with the same sender, receiver and tag keep their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from outpace.engine.distributed.call import REMEDY, difference
from outpace.errors import RunError
from outpace.kernel import Future
from outpace.simulation.collective.values import results_of
from outpace.simulation.scripts.messages import Joined
from outpace.simulation.scripts.shared_memory import CallMemory
from outpace.support.units import Time
from outpace.sync.messages import worker_name

_MESSAGES: Final = ("send", "recv")


@dataclass(slots=True, eq=False)
class Part:
    """One worker's part in a collective or message.

    Attributes:
        number: of the collective; of a message: of the worker's call.
        joined: time when the worker joined.
        all_joined: time when all workers had joined.
        ended: time when the worker had the result.
        sender: of the message that a recv has received.
    """

    worker: int
    call: Joined
    memory: CallMemory
    result: Future[None]  # it is there
    joined: Time = 0
    number: int = -1
    all_joined: Time = 0
    ended: Time = 0
    has_outputs: bool = False
    sender: int = -1

    def given(self) -> Any:
        """Return the inputs, one after the other."""
        return self.memory.view(self.call.place, sum(self.call.parts), self.call.dtype)

    def give(self, result: Any) -> None:
        """Write the outputs; None: there are none."""
        if result is not None:
            self.has_outputs = True
            self.memory.view(self.call.place, result.numel(), self.call.dtype).copy_(result)


class Collective:
    """A collective.

    Attributes:
        missing: workers that have not joined it.
        parts: those of the workers that have joined it, by number of the worker.
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
        """The workers, from the root on."""
        members, root = sorted(self.parts), max(0, self.first.root)
        return [*members[root:], *members[:root]]

    @property
    def size_bytes(self) -> int:
        """The bytes that determine its time: see `collective_rounds`."""
        sizes = [part.call.own_elements for part in self.parts.values()]
        return max(sizes) * self.first.dtype.itemsize

    def fits(self, part: Part) -> bool:
        """True if this part belongs to the collective."""
        return part.call.kind not in _MESSAGES and part.number == self.number

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
        """Return what is wrong if these missing workers have left the run."""
        return (
            f"{_names(left)} left the run before collective {self.number}; {self._said}: {REMEDY}"
        )

    def __str__(self) -> str:
        return f"{self._said}; {_names(self.missing)} did not"

    @property
    def _said(self) -> str:
        parts = self.parts.values()
        return ", ".join(f"{worker_name(part.worker)} called {part.call}" for part in parts)


class Message(Collective):
    """A message between two workers.

    The first call waits for the worker that it names; -1 is missing where it is any sender.
    """

    @property
    def by_rank(self) -> list[Part]:
        """Sender and receiver."""
        return sorted(self.parts.values(), key=lambda part: _MESSAGES.index(part.call.kind))

    @property
    def members(self) -> list[int]:
        return [part.worker for part in self.by_rank]

    def fits(self, part: Part) -> bool:
        """True if this part is the other side of the message."""
        (first,) = self.parts.values()
        sent, received = (first, part) if part.call.kind == "recv" else (part, first)
        return (
            (sent.call.kind, received.call.kind) == _MESSAGES
            and sent.call.root == received.worker
            and received.call.root in (-1, sent.worker)
            and sent.call.tag == received.call.tag
        )

    def add(self, part: Part) -> None:
        """Add a side. Raises RunError if the tensors of both differ in size or dtype."""
        if self.parts:
            self.missing.clear()
        self.parts[part.worker] = part
        if self.missing:
            return
        sent, received = self.by_rank
        said = [
            f"{elements:,} elements {str(each.call.dtype).removeprefix('torch.')}"
            for each, elements in ((sent, sum(sent.call.parts)), (received, received.call.elements))
        ]
        if said[0] != said[1]:
            raise RunError(
                f"{worker_name(sent.worker)} sends {said[0]} at {sent.call.where}, but "
                f"{worker_name(received.worker)} receives {said[1]} at {received.call.where}: give "
                "both calls tensors of the same size and dtype"
            )

    def carry_out(self) -> None:
        super().carry_out()
        sent, received = self.by_rank
        received.sender = sent.worker

    def without(self, left: Sequence[int]) -> str:
        return (
            f"{self._said}, but {_names(left)} has left the run: each send needs one recv, with "
            "the other's rank and the same tag"
        )

    def __str__(self) -> str:
        return f"{self._said} and waits for the other side"

    @property
    def _said(self) -> str:
        (first,) = self.parts.values()
        other = "any worker" if first.call.root < 0 else worker_name(first.call.root)
        how = "to" if first.call.kind == "send" else "from"
        return (
            f"{worker_name(first.worker)} called {first.call.kind} {how} {other} at "
            f"{first.call.where}"
        )


def carry_out_alone(part: Part, workers: int) -> None:
    """Write the result for a worker that runs alone, as if all others gave the same tensors."""
    call = part.call
    if call.kind in _MESSAGES or (call.root > 0 and call.kind in ("broadcast", "scatter")):
        return  # what another worker would give is not known
    values, sizes = [part.given()] * workers, [call.parts] * workers
    part.give(results_of(call.kind, call.operation, max(call.root, 0), values, sizes)[0])


class Matching:
    """The collectives and messages of a run that not all of their workers have joined."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._count = [0] * workers  # collectives that each has joined
        self._open: list[Collective] = []
        self._left: set[int] = set()
        self._ended: set[int] = set()  # at the end of the run

    def join(self, part: Part) -> Collective | None:
        """Let a worker make its next call; return what it is a part of if no worker is missing.

        Raises:
            RunError: another worker has called another collective, or has left.
        """
        is_message = part.call.kind in _MESSAGES
        part.number = part.call.number if is_message else self._count[part.worker]
        self._count[part.worker] += not is_message
        found = next((each for each in self._open if each.fits(part)), None)
        if found is None:
            everyone = range(self._workers)
            call = part.call
            found = Message(-1, [call.root]) if is_message else Collective(part.number, everyone)
            self._open.append(found)
        elif is_message:  # has both sides now
            self._open.remove(found)
        found.add(part)
        if found.missing:
            self._require_present(found)
            return None
        if not is_message:
            self._open.remove(found)
        return found

    def leave(self, worker: int) -> None:
        """Note that a worker makes no more calls. Raises RunError if another one waits for it."""
        self._left.add(worker)
        for found in self._open:
            self._require_present(found)

    def end(self, worker: int) -> None:
        """Note that a worker makes no more calls because the run ends; see `is_in_vain`."""
        self._ended.add(worker)

    def is_in_vain(self, part: Part) -> bool:
        """True if a worker that has come to the end of the run is missing where this one waits."""
        return any(
            found.missing & self._ended
            for found in self._open
            if found.parts.get(part.worker) is part
        )

    def waiting(self) -> list[str]:
        """Describe the calls that wait for other workers."""
        return [str(found) for found in self._open]

    def _require_present(self, found: Collective) -> None:
        if missing := sorted(self._left & found.missing):
            raise RunError(found.without(missing))


def _names(workers: Iterable[int]) -> str:
    return ", ".join(map(worker_name, sorted(workers)))
