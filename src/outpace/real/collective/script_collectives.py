"""Carries out the collectives of a script that uses torch.distributed, over Gloo."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

import torch

from outpace.engine.distributed.alone import copy_alone
from outpace.engine.distributed.call import Call, Pending
from outpace.engine.distributed.sameness import ROOTED
from outpace.engine.scripts.running import RunOver
from outpace.errors import RunError
from outpace.real.collective.checks import Check, Checks
from outpace.real.collective.gloo_operations import begun
from outpace.real.collective.group import Group, GroupSettings, dist, gloo_group
from outpace.real.collective.observer import Observer
from outpace.real.collective.store import GroupStore, StoreConnection
from outpace.real.collective.waits import Waits
from outpace.support.gpu_errors import is_gpu_error
from outpace.support.units import Time, seconds

c10d: Any = dist.distributed_c10d  # has all options of collectives

_LOOK_S: Final = 0.001  # between two looks whether other workers want something
_STORE_S: Final = 60.0  # for an answer of the store


class GlooCollectives:
    """The collectives of one worker. Implements `Collectives`.

    Args:
        store: through which the workers find each other.
        host: address at which other workers reach this one.
        timeout_s: longest time for which a worker waits for the others.
        number: of this group, if the script makes several one after the other.
        follows: gradient buckets are all-reduced here; see `Observer.exchanged`.

    Raises:
        RunError: another worker has not made its group in time.
    """

    def __init__(
        self,
        store: StoreConnection,
        host: str,
        rank: int,
        size: int,
        timeout_s: float,
        *,
        number: int = 0,
        follows: bool = False,
    ) -> None:
        self.rank, self.size = rank, size
        self.observer: Observer | None = None
        self.follows, self._timeout_s, self._host = follows, timeout_s, host
        kept = self._kept = GroupStore(store, timeout_s)  # torch keeps no reference to it
        self.store = dist.PrefixStore(f"script {number}", kept)
        self._group: Any = None
        self._agreed: tuple[Any, torch.Tensor] | None = None  # see `_begin_agreeing`
        self._is_at_end = False  # see `end_run`
        shared, prefix = GroupStore(store, _STORE_S), f"waits {number}"
        self._waits = Waits(shared, prefix, rank, size)
        self.checks = Checks(shared, prefix, rank, size, self._differs)
        if size == 1:
            return
        own = dist.PrefixStore("gloo", self.store)
        try:
            self._group = gloo_group(own, host, rank, size, timedelta(seconds=timeout_s))
        except RuntimeError as error:
            raise RunError(
                f"init_process_group: worker-{rank} waited {timeout_s:g} s (its timeout) for the "
                f"other workers: call it in all workers, or give it a longer timeout ({error})"
            ) from None

    # -- Collectives --------------------------------------------------------------------------

    def begin(self, call: Call) -> Pending:
        if self._is_at_end:  # in what the script does while it exits
            raise RunOver(0)
        bucket = call.bucket
        if self.observer is not None:
            if bucket is not None:
                self.observer.handing_over(call)
            elif call.computed == 1:
                self.observer.computed()
        pending = _Pending(self, call)
        self._waits.begun(call)
        try:
            pending.begin(self._group, self.size)
        except RuntimeError as error:
            if is_gpu_error(error):  # of this script's own computation, which is seen here
                raise
            self.failed(call, error, pending.begun)
        if bucket is not None and bucket.is_last and self.follows:
            self._begin_agreeing()
        return pending

    def finish(self, buckets: Sequence[Pending]) -> None:
        computed = time.monotonic_ns()
        if self._agreed is None:
            self._begin_agreeing()
        for pending in buckets:
            assert isinstance(pending, _Pending)
            pending.wait_quietly()
        arrived = time.monotonic_ns()
        joined, over = self._agree(buckets)
        if self.observer is not None:
            self.observer.exchanged(computed, joined, arrived, over)

    def close(self) -> None:
        """Nothing is closed yet: other workers may still read what this one has sent."""

    def end_run(self) -> None:
        """Begin no more collectives: the run is over for this worker.

        Other workers may still train. For them it is over when they wait for this worker.
        """
        self._is_at_end = True
        self._waits.say_end()

    def end(self) -> None:
        """Close the connections to the other workers."""
        self._waits.close()
        self._group = None

    def check(self, call: Call) -> Check | None:
        """Begin to check a call; the other buckets of a backward pass follow its first one."""
        is_later_bucket = call.bucket is not None and call.bucket.index > 0
        if is_later_bucket or call.kind in ("send", "recv"):
            return None
        ended = self.observer is not None and self.observer.has_seen_end()
        return Check(self._group, call, ended=ended)

    def settle(self, check: Check) -> None:
        """Wait until all workers have joined. See `Checks.settle`."""
        if self.checks.settle(check) and self.observer is not None:
            self.observer.ends()

    def _differs(self, call: Call) -> None:
        """Raise RunOver if a check has found a difference because the run is over."""
        if self.observer is not None:
            self.observer.broken(call)

    def separate_group(self, name: str) -> Group:
        """Return another group of the same workers, in which no collective of the script travels.

        Raises:
            RuntimeError: another worker has not made its group in time.
        """
        limit = timedelta(seconds=self._timeout_s)
        settings = GroupSettings(self.store, self._host, "gloo", limit=limit)
        return Group(settings, name, range(self.size), self.rank)

    # -- what the workers agree on ------------------------------------------------------------

    def _begin_agreeing(self) -> None:
        """Begin to find out when all workers have joined, and whether one knows of the end.

        A small all-reduce follows that of the last bucket, and ends at nearly the same time.
        """
        observer = self.observer
        now, ended = (0, False) if observer is None else (observer.now, observer.has_seen_end())
        mine = torch.tensor([now, int(ended)], device="cpu")
        if self._group is None:
            self._agreed = None, mine
            return
        options = c10d.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.MAX
        self._agreed = self._group.allreduce([mine], options), mine

    def _agree(self, buckets: Sequence[Pending]) -> tuple[int, bool]:
        assert self._agreed is not None
        (work, found), self._agreed = self._agreed, None
        if work is not None:
            try:
                work.wait()
            except RuntimeError as error:
                last = buckets[-1]
                assert isinstance(last, _Pending)
                self.failed(last.call, error, last.begun)
        joined, over = found.tolist()
        return joined, bool(over)

    # -- what its pending collectives tell ------------------------------------------------------

    def ended(self, call: Call, begun: int) -> None:
        """Note that the script has waited for this collective since `begun`."""
        self._waits.ended(call)
        if self.observer is not None and call.bucket is None:
            self.observer.waited(call, begun, time.monotonic_ns())

    def arrived(self, call: Call) -> None:
        """Note that a bucket has arrived."""
        self._waits.ended(call)

    def failed(self, call: Call, error: Exception, begun: int) -> None:
        """Raise RunOver if the run is over, else RunError with what went wrong."""
        waited_s = seconds(Time(time.monotonic_ns() - begun))
        if self.observer is not None and self._waits.has_another_ended():
            self._is_at_end = True
            self.observer.missed(call, begun)
        others = self._waits.others_than(call)
        if self.observer is not None:
            self.observer.broken(call)
        raise RunError(self._waits.explained(call, others, waited_s, error)) from None


class _Pending:
    """Implements `Pending`."""

    def __init__(self, owner: GlooCollectives, call: Call) -> None:
        self._owner, self.call = owner, call
        self.begun = time.monotonic_ns()
        self._check: Check | None = None  # to be settled
        self._waits = False  # the observer knows that the script waits
        self._work: Any = None
        self._is_over = False
        self._then: Callable[[], None] | None = None  # makes the outputs from what has arrived
        self._future: torch.futures.Future[Any] | None = None  # of the outputs, if `_then` does

    def begin(self, group: Any, size: int) -> None:
        if group is None:
            copy_alone(self.call)
        else:
            self._check = self._owner.check(self.call)
            if self.call.waits:
                self._settle()
            self._work, self._then = begun(group, self.call, size)

    def wait(self) -> None:
        if self._is_over:
            return
        begun = self.begun if self.call.waits else time.monotonic_ns()
        self._wait()
        self._owner.ended(self.call, begun)

    def wait_quietly(self) -> None:
        """Wait for a bucket."""
        if not self._is_over:
            self._wait()
            self._owner.arrived(self.call)

    def _wait(self) -> None:
        if self._work is not None:
            try:
                self._settle()
                self._attend(self)
                self._work.wait()
            except RuntimeError as error:
                self._owner.failed(self.call, error, self.begun)
        if self._then is not None:
            with torch.no_grad():
                self._then()
        self._is_over = True
        if self._future is not None:
            self._future.set_result(list(self.call.outputs))

    def _settle(self) -> None:
        """Settle the check. The end of a rooted collective does not wait for all workers."""
        check, self._check = self._check, None
        if check is None:
            return
        if self._work is not None and self.call.kind in ROOTED:
            self._attend(check, self)
            check.wait_for_either(self._work)
            if not check.is_done():
                self._owner.checks.settle_later(check)
                return
        self._attend(check)
        self._owner.settle(check)

    def _attend(self, *works: Check | _Pending) -> None:
        """Do what other workers want until one of these is done."""
        observer = self._owner.observer
        if observer is None or self.call.bucket is not None or any(w.is_done() for w in works):
            return
        if not self._waits:
            self._waits = True
            observer.waiting()
        while not any(work.is_done() for work in works) and observer.attend():
            time.sleep(_LOOK_S)

    def is_done(self) -> bool:
        return self._is_over or self._work is None or bool(self._work.is_completed())

    def sender(self) -> int:
        return int(self._work._source_rank())

    def future(self) -> torch.futures.Future[Any]:
        is_followed = self._work is not None and self._owner.follows
        if is_followed and self._then is None:
            found: torch.futures.Future[Any] = self._work.get_future()
            return found
        if not (is_followed and self.call.bucket is not None):  # `finish` waits for buckets
            self.wait()  # where it is seen that the script waits
        if self._future is None:
            self._future = torch.futures.Future()
            if self._is_over:
                self._future.set_result(list(self.call.outputs))
        return self._future
