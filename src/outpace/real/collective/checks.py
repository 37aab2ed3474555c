"""Finds out whether all workers call the same collective, before Gloo carries it out.

Gloo does not: with different kinds it waits until its time-out, with different sizes its process
aborts, or the result is wrong. So a small all-reduce of a fingerprint of the call goes before. A
script that waits for its collective begins it when that is over. Others begin it at once, as
DistributedDataParallel does with the first bucket of a backward pass: then the check costs no time.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import torch

from outpace.engine.distributed.call import REMEDY, ROOTED, Call, difference
from outpace.errors import RunError
from outpace.real.collective.group import dist
from outpace.real.collective.waits import once_all

c10d: Any = dist.distributed_c10d  # has all options of collectives


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
        self._found = torch.tensor([number, -number, int(ended)], device="cpu")
        options = c10d.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.MAX
        options.timeout = timedelta(seconds=call.timeout_s)
        self._work = group.allreduce([self._found], options)

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


class Checks:
    """The checks of a worker that are not settled.

    Args:
        store: of the run. prefix: of the keys in it.
        differs: called with a call that differs, before the error.
    """

    def __init__(
        self, store: Any, prefix: str, rank: int, size: int, differs: Callable[[Call], None]
    ) -> None:
        self._store, self._prefix, self._rank, self._size = store, prefix, rank, size
        self._differs = differs
        self._waiting: list[Check] = []  # this worker's part in their collectives is over

    def settle(self, check: Check) -> bool:
        """Wait for the end of a check, and of those before it.

        Returns:
            True if the run is over and all workers learn it from this check.

        Raises:
            RunError: the workers have called different collectives.
            RuntimeError: a worker has not joined in time.
        """
        before, self._waiting = self._waiting, []
        for each in (*before, check):
            each.wait()
            self._require_same(each)
        return check.is_over and (check.call.waits or check.call.kind not in ROOTED)

    def settle_later(self, check: Check) -> None:
        """Settle a check without waiting: now if it is done, else with a later one."""
        waiting = []
        for each in (*self._waiting, check):
            if each.is_completed():
                self._require_same(each)
            else:
                waiting.append(each)
        self._waiting = waiting

    def _require_same(self, check: Check) -> None:
        if not check.is_same:
            calls = self._calls_of_all(check.call)
            self._differs(check.call)
            raise RunError(_explained(check.call, calls))

    def _calls_of_all(self, call: Call) -> dict[int, tuple[str, str]]:
        """Return the words and the line of each worker's call, by rank.

        All workers whose calls differ ask for it; those that do not within seconds are missing.
        """
        mine = call.words(), call.where
        keys = [f"{self._prefix} called {rank}" for rank in range(self._size)]

        with contextlib.suppress(RuntimeError):  # the store is closed
            self._store.set(keys[self._rank], msgspec.json.encode(mine))

        def published() -> dict[int, tuple[str, str]]:
            return {
                rank: msgspec.json.decode(self._store.get(key), type=tuple[str, str])
                for rank, key in enumerate(keys)
                if self._store.check([key])
            }

        return {self._rank: mine, **once_all(published, self._size)}


def _explained(call: Call, calls: dict[int, tuple[str, str]]) -> str:
    """Return the message about workers whose calls differ."""
    found = difference(calls)
    if not found:
        found = f"{call} is no collective of another worker, which has ended or cannot be asked"
    return f"a collective differs between workers: {found}: {REMEDY}"
