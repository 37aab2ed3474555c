"""Messages between two workers of a script: `send` and `recv` of torch.distributed.

A message begins when sender and receiver have both called, as with Gloo, whose send waits for the
receiver. Messages with the same sender, receiver and tag keep their order.
"""

from __future__ import annotations

from outpace.errors import RunError
from outpace.simulation.scripts.collectives.matching import Part
from outpace.sync.messages import worker_name

KINDS = ("send", "recv")
_REMEDY = "each send needs one recv, with the other's rank and the same tag"


class PointToPoint:
    """The sends and receives of a run that have no counterpart yet."""

    def __init__(self) -> None:
        self._waiting: list[Part] = []
        self._left: set[int] = set()
        self._ended: set[int] = set()  # at the end of the run

    def join(self, part: Part) -> tuple[Part, Part] | None:
        """Let a worker send or receive; return sender's and receiver's part if both are there.

        Raises:
            RunError: the tensors differ in size or dtype, or the other worker has left.
        """
        part.number = part.call.number
        for other in self._waiting:
            sent, received = (part, other) if part.call.kind == "send" else (other, part)
            if _fit(sent, received):
                self._waiting.remove(other)
                _require_same(sent, received)
                return sent, received
        self._waiting.append(part)
        self._require_present(part)
        return None

    def leave(self, worker: int) -> None:
        """Note that a worker makes no more calls. Raises RunError if another one waits for it."""
        self._left.add(worker)
        for part in self._waiting:
            self._require_present(part)

    def end(self, worker: int) -> list[Part]:
        """Note that a worker makes no more calls because the run ends; return the waiting calls."""
        self._ended.add(worker)
        return [part for part in self._waiting if part.call.root == worker]

    def is_in_vain(self, part: Part) -> bool:
        """True if a part waits for a worker that has come to the end of the run."""
        return part in self._waiting and part.call.root in self._ended

    def waiting(self) -> list[str]:
        """Describe the calls that have no counterpart yet."""
        return [f"{_said(part)} and waits for the other side" for part in self._waiting]

    def _require_present(self, part: Part) -> None:
        if part.call.root in self._left:
            other = worker_name(part.call.root)
            raise RunError(f"{_said(part)}, but {other} has left the run: {_REMEDY}")


def carry_out(sent: Part, received: Part) -> None:
    """Copy a message into the memory of its receiver."""
    elements, dtype = received.call.elements, received.call.dtype
    value = sent.memory.view(sent.call.place, elements, dtype)
    received.memory.view(received.call.place, elements, dtype).copy_(value)
    received.has_outputs, received.sender = True, sent.worker


def size_bytes(sent: Part) -> int:
    """Return the size of a message."""
    return sum(sent.call.parts) * sent.call.dtype.itemsize


def _fit(sent: Part, received: Part) -> bool:
    return (
        (sent.call.kind, received.call.kind) == KINDS
        and sent.call.root == received.worker
        and received.call.root in (-1, sent.worker)
        and sent.call.tag == received.call.tag
    )


def _require_same(sent: Part, received: Part) -> None:
    words = [
        f"{elements:,} elements {str(part.call.dtype).removeprefix('torch.')}"
        for part, elements in ((sent, sum(sent.call.parts)), (received, received.call.elements))
    ]
    if words[0] != words[1]:
        raise RunError(
            f"{worker_name(sent.worker)} sends {words[0]} at {sent.call.where}, but "
            f"{worker_name(received.worker)} receives {words[1]} at {received.call.where}: give "
            "both calls tensors of the same size and dtype"
        )


def _said(part: Part) -> str:
    call = part.call
    other = "any worker" if call.root < 0 else worker_name(call.root)
    how = "to" if call.kind == "send" else "from"
    return f"{worker_name(part.worker)} called {call.kind} {how} {other} at {call.where}"
