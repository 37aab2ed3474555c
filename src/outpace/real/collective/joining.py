"""How a worker joins a group of all-reduces that has begun: another member hands its state over.

The joining worker is a member of a new group. There the members say how many results they have;
it says that it has no state. The first member that has all results sends its state, as it is when
this member begins the next all-reduce, number n. The joining worker takes part in n without a
value. When it has the result, all others have begun n, so none of them can fall back behind the
state. If a worker of the group is lost before that, the joining worker gives up what it has, and
is given a state again in the next group.

Nothing waits for the state but this all-reduce, which needs the member that sends it anyway.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Final, TypeAlias

import torch

from outpace.errors import ProtocolError
from outpace.real.collective.communication_thread import Waker
from outpace.real.collective.group import Group
from outpace.sync.messages import worker_name

Encode: TypeAlias = Callable[[], torch.Tensor]  # returns a state as bytes; slow, in any thread

_LOOK_EVERY_S: Final = 0.1
_SIZE, _DATA = 0, 1  # tags


class HandingOver:
    """Hands the state of this worker to workers that join, when it begins an all-reduce.

    Args:
        read: returns the state as it is now. Called in the training thread.
    """

    def __init__(self, waker: Waker, read: Callable[[], Encode]) -> None:
        self._waker, self._read = waker, read
        self._asking: queue.SimpleQueue[Encode] | None = None

    # -- in the training thread ---------------------------------------------------------

    def began(self) -> None:
        """This worker has begun an all-reduce: hand over its state if it was asked for."""
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.put(self._read())

    # -- in the communication thread ------------------------------------------------------

    def give(
        self,
        group: Group,
        to: list[int],
        has_begun: Callable[[], bool],
        is_abandoned: Callable[[], bool],
    ) -> None:
        """Send the state to these members, once an all-reduce has begun.

        Args:
            has_begun: asked in the training thread whether one is under way already.

        Raises:
            RuntimeError: a member cannot be reached, or the group is given up.
        """
        asking: queue.SimpleQueue[Encode] = queue.SimpleQueue()

        def ask() -> None:
            if not is_abandoned():
                self._asking = asking
                if has_begun():
                    self.began()

        self._waker.call(ask)
        while True:
            try:
                encode = asking.get(timeout=_LOOK_EVERY_S)
                break
            except queue.Empty:
                if is_abandoned():
                    raise RuntimeError("the group was given up") from None
        data = encode()
        for member in to:
            group.send(torch.tensor([data.numel()]), member, _SIZE)
            group.send(data, member, _DATA)


def receive_state(group: Group, source: int, most: int) -> torch.Tensor:
    """Return the state that this member sends, as bytes.

    Args:
        most: bytes that a state of this model may have.

    Raises:
        ProtocolError: it sends another number of bytes.
        RuntimeError: the member cannot be reached.
    """
    size = torch.zeros(1, dtype=torch.int64)
    group.receive(size, source, _SIZE)
    if not 0 <= int(size) <= most:
        raise ProtocolError(
            f"{worker_name(source)} hands over a state of {int(size):,} bytes, and that of this "
            f"model has at most {most:,}: use the same script, with the same model, on all workers"
        )
    data = torch.empty(int(size), dtype=torch.uint8)
    group.receive(data, source, _DATA)
    return data
