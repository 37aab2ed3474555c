"""The collectives of a script that uses torch.distributed, on the backend that it asks for.

Each operation is Gloo's or NCCL's own, with the arguments of the script's call. This file records
when a collective begins and ends, and which worker is missing.

Gloo does not find out whether all workers call the same collective: with different kinds it waits
until its time-out, with different sizes its process aborts, or the result is wrong. So a small
all-reduce of a fingerprint of the call comes first (`Check`). If the script waits for its
collective, the collective begins after the check. Otherwise it begins at once, as with
DistributedDataParallel's first bucket of a backward pass: then the check costs no time.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import torch

from outpace.engine.distributed.call import ROOTED, Call, Collectives, CollectiveWork, not_compiled
from outpace.engine.scripts.ending import RunOver
from outpace.errors import RunError
from outpace.real.collective.group import (
    Group,
    GroupSettings,
    backend_for,
    dist,
    gloo_group,
    gpu_of,
    nccl_group,
)
from outpace.real.collective.store import GroupStore, StoreConnection
from outpace.real.collective.waits import Waits
from outpace.support.gpu_errors import is_gpu_error
from outpace.support.units import Time, seconds

_LOOK_S: Final = 0.001  # seconds between two checks for requests of other workers
_STORE_S: Final = 60.0  # seconds for an answer of the store
c10d: Any = dist.distributed_c10d  # this class has all options of collectives


class Observer:
    """Is called when collectives of a script happen; this class does nothing.

    Times are values of `time.monotonic_ns`, which differs between machines; run time is nearly the
    same on all machines.
    """

    @property
    def now(self) -> Time:
        """The time of the run, which is nearly the same for all workers; 0 before it."""
        return 0

    def begins(self, call: Call) -> None:
        """Called before a call is passed to its backend; may block."""

    def has_seen_end(self) -> bool:
        """True if this worker knows that the run is over."""
        return False

    def ends(self) -> None:
        """Called when all workers have learned, in the same collective, that the run is over."""

    def exchanged(self, computed: int, joined: int, arrived: int) -> None:
        """Called when all buckets of a backward pass have arrived.

        Args:
            computed: when this worker had handed over the last bucket, or when its backward pass
                ended.
            joined: run time at which the last worker gave its last bucket to Gloo, by the clock of
                that worker.
        """

    def attend(self) -> bool:
        """Handle requests of other workers while this one waits; False if there are none.

        Called repeatedly while the script waits for a collective that is not a gradient bucket.
        """
        return False

    def waited(self, call: Call, begun: int, ended: int) -> None:
        """Called after the script has waited for a collective that is no gradient bucket."""

    def broken(self, call: Call) -> None:
        """Called when a collective has failed. Raises RunOver if the run has ended."""

    def missed(self, call: Call, begun: int) -> None:
        """Handle that the script has waited since `begun` for a worker at the end of the run.

        Raises RunOver.
        """


class Maximum:
    """A running all-reduce with Gloo that computes the maximum of each number over all workers."""

    def __init__(self, group: Any, numbers: Sequence[int], timeout: timedelta) -> None:
        self.found = torch.tensor(numbers, device="cpu")  # known once it is over
        options = c10d.AllreduceOptions()
        options.reduceOp, options.timeout = dist.ReduceOp.MAX, timeout
        self.work = group.allreduce([self.found], options)

    def is_completed(self) -> bool:
        return bool(self.work.is_completed())


class Check(Maximum):
    """The check of a call.

    ended: True if this worker knows that the run is over.
    """

    def __init__(self, group: Any, call: Call, *, ended: bool) -> None:
        self.call = call
        text = call.words().encode()
        number = int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "little")
        mine, limit = (number, -number, int(ended)), timedelta(seconds=call.timeout_s)
        super().__init__(group, mine, limit)

    def wait_for_either(self, work: Any) -> None:
        """Wait until this, or the work of a collective, is over."""
        is_over = threading.Event()
        for each in (self.work, work):
            each.get_future().add_done_callback(lambda _: is_over.set())
        is_over.wait()

    @property
    def is_same(self) -> bool:
        """True if all workers have made the same call. Valid only after the end of the check."""
        return bool(self.found[0] == -self.found[1])

    @property
    def is_over(self) -> bool:
        """True if a worker knows that the run is over, the same for all workers."""
        return bool(self.found[2])


class BackendCollectives(Collectives):
    """The collectives of one worker.

    NCCL is used for tensors on GPUs if the script allows it and each worker has its own GPU. Gloo
    is used for all other tensors, and for the messages among workers.

    Args:
        store: store through which the workers find each other.
        host: address under which other workers reach this one.
        timeout_s: longest time for which a worker waits for the others.
        backend: the backend that the script has named; None: torch chooses.
        number: number of this group, if the script makes several, one after the other.
        follows: True: gradient buckets are all-reduced here; see `Observer.exchanged`.

    Raises:
        RunError: if another worker has not made its group in time.
    """

    def __init__(
        self,
        store: StoreConnection,
        host: str,
        rank: int,
        size: int,
        timeout_s: float,
        backend: str | None = "gloo",
        *,
        number: int = 0,
        follows: bool = False,
    ) -> None:
        self.rank, self.size = rank, size
        self.observer = Observer()
        self.follows, self._host, self._limit = follows, host, timedelta(seconds=timeout_s)
        kept = self._kept = GroupStore(store, timeout_s)  # torch keeps no reference to it
        self._store = dist.PrefixStore(f"script {number}", kept)
        self._may_use_nccl = backend is None or "nccl" in backend.lower()
        self._on_gpus: Any = None  # the group for tensors on GPUs, once there was one
        self._agreed: Maximum | None = None  # see `_begin_agreeing`
        self._is_at_end = False  # see `end_run`
        shared, prefix = GroupStore(store, _STORE_S), f"waits {number}"
        self._waits = Waits(shared, prefix, rank, size)
        self._unsettled: list[Check] = []  # this worker takes no more part in their collectives
        own = dist.PrefixStore("gloo", self._store)
        try:
            self._group: Any = gloo_group(own, host, rank, size, self._limit)
        except RuntimeError as error:
            raise RunError(
                f"init_process_group: worker-{rank} waited {timeout_s:g} s (its timeout) for the "
                f"other workers: call it in all workers, or give it a longer timeout ({error})"
            ) from None

    # -- Collectives --------------------------------------------------------------------------

    def begin(self, call: Call) -> CollectiveWork:
        if self._is_at_end:  # in code of the script that runs while it exits
            raise RunOver(0)
        self.observer.begins(call)
        pending = BackendWork(self, call)
        self._waits.begun(call)
        try:
            pending.begin()
        except RuntimeError as error:
            if is_gpu_error(error):  # called after this script's own computation
                raise
            self.failed(call, error, pending.begun)
        if call.bucket is not None and call.bucket.is_last:
            self._begin_agreeing()
        return pending

    def finish(self, buckets: Sequence[CollectiveWork]) -> None:
        computed = time.monotonic_ns()
        if self._agreed is None:
            self._begin_agreeing()
        super().finish(buckets)
        arrived = time.monotonic_ns()
        joined, is_over = self._agree(buckets)
        if is_over:
            self.observer.ends()
        self.observer.exchanged(computed, joined, arrived)

    def end_run(self) -> None:
        """Do not begin any more collectives, because the run is over for this worker.

        Other workers may still train. For them the run is over when they wait for this worker.
        """
        self._is_at_end = True
        self._waits.say_end()

    def end(self) -> None:
        """Close the connections to the other workers."""
        self._waits.close()
        self._group = self._on_gpus = None

    def start(self, call: Call) -> Any:
        """Start an operation on its backend, and return torch's `Work`."""
        return call.start(self._group_for((*call.inputs, *call.outputs)))

    def _group_for(self, tensors: Sequence[torch.Tensor]) -> Any:
        """Return the group of torch for these tensors. The first one on a GPU makes it."""
        if not self._may_use_nccl or all(tensor.device.type != "cuda" for tensor in tensors):
            return self._group
        if self._on_gpus is None:
            places = dist.PrefixStore("gpus", self._store)
            places.set(str(self.rank), gpu_of(tensors[0].device))
            gpus = [places.get(str(rank)).decode() for rank in range(self.size)]
            self._on_gpus = self._group
            if backend_for(gpus) == "nccl":
                own, limit = dist.PrefixStore("nccl", self._store), self._limit
                self._on_gpus = nccl_group(own, self.rank, self.size, limit)
        return self._on_gpus

    def check(self, call: Call) -> Check | None:
        """Begin to check a call; one check covers all buckets of a backward pass."""
        if call.bucket is not None and call.bucket.index > 0:
            return None
        return Check(self._group, call, ended=self.observer.has_seen_end())

    def settle(self, check: Check) -> None:
        """Wait for the end of a check, when all workers have joined, and of earlier checks.

        Raises:
            RunError: if the workers have called different collectives.
            RuntimeError: if a worker has not joined in time.
        """
        before, self._unsettled = self._unsettled, []
        for each in (*before, check):
            each.work.wait()
            self._require_same(each)
        if check.is_over and (check.call.waits or check.call.kind not in ROOTED):
            self.observer.ends()

    def settle_later(self, check: Check) -> None:
        """Evaluate a check without waiting: now if it is done, else with a later check."""
        checks = [*self._unsettled, check]
        self._unsettled = [each for each in checks if not each.is_completed()]
        for each in checks:
            if each not in self._unsettled:
                self._require_same(each)

    def _require_same(self, check: Check) -> None:
        if not check.is_same:
            message = self._waits.differing(check.call)
            self.observer.broken(check.call)
            raise RunError(message)

    def probe_group(self) -> Group:
        """Return another group of the same workers that carries no collective of the script.

        Raises:
            RuntimeError: if another worker has not made its group in time.
        """
        settings = GroupSettings(self._store, self._host, "gloo", limit=self._limit)
        return Group(settings, "probe", range(self.size), self.rank)

    # -- what the workers agree on ------------------------------------------------------------

    def _begin_agreeing(self) -> None:
        """Begin to find out when all workers have joined, and whether one knows of the end.

        A small all-reduce follows the all-reduce of the last bucket, and ends at nearly the same
        time.
        """
        mine = self.observer.now, int(self.observer.has_seen_end())
        self._agreed = Maximum(self._group, mine, self._limit)

    def _agree(self, buckets: Sequence[CollectiveWork]) -> tuple[int, bool]:
        agreed, self._agreed = self._agreed, None
        assert agreed is not None
        try:
            agreed.work.wait()
        except RuntimeError as error:
            last = buckets[-1]
            assert isinstance(last, BackendWork)
            self.failed(last.call, error, last.begun)
        joined, over = agreed.found.tolist()
        return joined, bool(over)

    # -- what its pending collectives tell ------------------------------------------------------

    def ended(self, call: Call, begun: int) -> None:
        """Note that the script has waited for this collective since `begun`."""
        self._waits.ended(call)
        if call.bucket is None:
            self.observer.waited(call, begun, time.monotonic_ns())

    def failed(self, call: Call, error: Exception, begun: int) -> None:
        """Raise RunOver if the run is over, else a RunError about the failure."""
        waited_s = seconds(Time(time.monotonic_ns() - begun))
        if self._waits.has_another_ended():
            self._is_at_end = True
            self.observer.missed(call, begun)
        message = self._waits.explained(call, waited_s, error)
        self.observer.broken(call)
        raise RunError(message) from None


@not_compiled
class BackendWork(CollectiveWork):
    """A collective that its backend carries out."""

    def __init__(self, owner: BackendCollectives, call: Call) -> None:
        super().__init__(call.outputs)
        self._owner, self.call = owner, call
        self.begun = time.monotonic_ns()
        self._check: Check | None = None  # the check that is not evaluated yet
        self._work: Any = None
        self._is_over = False

    def begin(self) -> None:
        self._check = self._owner.check(self.call)
        if self.call.waits:
            self._settle()
        self._work = self._owner.start(self.call)

    def wait(self, timeout: timedelta | None = None) -> bool:
        if self._is_over:
            return True
        begun = self.begun if self.call.waits else time.monotonic_ns()
        try:
            self._settle()
            self._attend(self)
            self._work.wait()
            for tensor in self.call.outputs[:1]:
                if tensor.is_cuda:  # NCCL has only queued the work so far
                    torch.cuda.current_stream(tensor.device).synchronize()
        except RuntimeError as error:
            self._owner.failed(self.call, error, self.begun)
        self._is_over = True
        self._owner.ended(self.call, begun)
        return True

    def _settle(self) -> None:
        """Wait for the check of this call, and raise its error if the workers' calls differ.

        A rooted collective may end in this worker before the others have joined. Then the check is
        left to the next call.
        """
        check, self._check = self._check, None
        if check is None:
            return
        if self._work is not None and self.call.kind in ROOTED:
            self._attend(check, self)
            check.wait_for_either(self._work)
            if not check.is_completed():
                self._owner.settle_later(check)
                return
        self._attend(check)
        self._owner.settle(check)

    def _attend(self, *works: Check | BackendWork) -> None:
        """Handle requests of other workers until one of these is done."""
        if self.call.bucket is None:
            observer = self._owner.observer
            while not any(work.is_completed() for work in works) and observer.attend():
                time.sleep(_LOOK_S)

    def is_completed(self) -> bool:
        return self._is_over or bool(self._work.is_completed())

    def get_future(self) -> torch.futures.Future[Any]:
        if not self._owner.follows:
            self.wait()  # here it is known that the script waits
        found: torch.futures.Future[Any] = self._work.get_future()
        return found
