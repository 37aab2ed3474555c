"""Finds out whether all workers call the same collective, before Gloo carries it out.

Gloo does not: with different kinds it waits until its time-out, with different sizes its process
aborts, or the result is wrong. So a small all-reduce of a fingerprint of the call goes before. A
script that waits for its collective begins it when that is over. Others begin it at once, as
DistributedDataParallel does with the first bucket of a backward pass: then the check costs no time.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch

from outpace.engine.distributed.call import Call
from outpace.real.collective.group import dist

c10d: Any = dist.distributed_c10d  # has all options of collectives


def begin_maximum(
    group: Any, numbers: Sequence[int], timeout: timedelta
) -> tuple[Any, torch.Tensor]:
    """Begin to find the maximum of each number over all workers; return the work and the result."""
    found = torch.tensor(numbers, device="cpu")
    options = c10d.AllreduceOptions()
    options.reduceOp, options.timeout = dist.ReduceOp.MAX, timeout
    return group.allreduce([found], options), found


class Check:
    """The check of a call, which has begun.

    Args:
        group: of Gloo.
        ended: this worker knows that the run is over.
    """

    def __init__(self, group: Any, call: Call, *, ended: bool) -> None:
        self.call = call
        text = call.words().encode()
        number = int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "little")
        mine, limit = (number, -number, int(ended)), timedelta(seconds=call.timeout_s)
        self._work, self._found = begin_maximum(group, mine, limit)

    def is_completed(self) -> bool:
        return bool(self._work.is_completed())

    def wait(self) -> None:
        """Wait until all workers have joined. Raises RuntimeError if they do not."""
        self._work.wait()

    def wait_for_either(self, work: Any) -> None:
        """Wait until this, or the work of a collective, is over."""
        is_over = threading.Event()
        for each in (self._work, work):
            each.get_future().add_done_callback(lambda _: is_over.set())
        is_over.wait()

    @property
    def is_same(self) -> bool:
        """True if all workers have made the same call. Only after the end of the check."""
        return bool(self._found[0] == -self._found[1])

    @property
    def is_over(self) -> bool:
        """True if a worker knows that the run is over, the same for all workers."""
        return bool(self._found[2])
