"""Carries out the collectives of a script that uses torch.distributed, over Gloo."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final, Protocol

import torch

from outpace.engine.distributed.call import Call, Pending
from outpace.errors import RunError
from outpace.real.collective.group import dist, gloo_group
from outpace.real.collective.store import GroupStore, StoreConnection
from outpace.real.collective.waits import Waits
from outpace.support.units import Time, seconds

c10d: Any = dist.distributed_c10d  # has all options of collectives

_OPERATIONS: Final = {
    "sum": dist.ReduceOp.SUM,
    "avg": dist.ReduceOp.SUM,  # Gloo has no mean: `_Pending` divides
    "product": dist.ReduceOp.PRODUCT,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
    "band": dist.ReduceOp.BAND,
    "bor": dist.ReduceOp.BOR,
    "bxor": dist.ReduceOp.BXOR,
}
_LOOK_S: Final = 0.001  # between two looks whether other workers want something
_STORE_S: Final = 60.0  # for an answer of the store


class Observer(Protocol):
    """Is told when the collectives of a script happen. Times are values of `time.monotonic_ns`."""

    def handing_over(self, call: Call) -> None:
        """A gradient bucket is complete, and is given to Gloo next. May wait before that."""

    def has_seen_end(self) -> bool:
        """True if this worker knows that the run is over."""

    def exchanged(self, computed: int, joined: int, arrived: int, over: bool) -> None:
        """All buckets of a backward pass have arrived.

        Args:
            computed: when this worker had handed the last bucket over, or its backward pass ended.
            joined: the latest time at which a worker gave its last bucket to Gloo.
            over: a worker knows that the run is over, the same answer for all workers.
        """

    def attend(self) -> bool:
        """Handle what other workers want of this one while it waits; False if they want nothing."""

    def waited(self, call: Call, begun: int, ended: int) -> None:
        """The script has waited for another collective."""

    def broken(self, call: Call) -> None:
        """A collective has failed. Raises RunOver if the run has ended."""


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
        self._follows, self._timeout_s = follows, timeout_s
        kept = self._kept = GroupStore(store, timeout_s)  # torch keeps no reference to it
        self.store = dist.PrefixStore(f"script {number}", kept)
        self._group: Any = None
        self._agreed: tuple[Any, torch.Tensor] | None = None  # see `_begin_agreeing`
        self._waits = Waits(GroupStore(store, _STORE_S), f"waits {number}", rank, size)
        if size == 1:
            return
        own = dist.PrefixStore("gloo", self.store)
        try:
            self._group = gloo_group(own, host, rank, size, timedelta(seconds=timeout_s))
        except RuntimeError as error:
            raise RunError(
                f"init_process_group: worker-{rank} waited {timeout_s:g} s (its timeout) for the "
                f"other workers: does each of them call it? ({error})"
            ) from None

    # -- Collectives --------------------------------------------------------------------------

    def begin(self, call: Call) -> Pending:
        bucket = call.bucket
        if bucket is not None and self.observer is not None:
            self.observer.handing_over(call)
        pending = _Pending(self, call)
        self._waits.begun(call)
        try:
            pending.begin(self._group, self.size)
        except RuntimeError as error:
            self.failed(call, error, time.monotonic_ns())
        if bucket is not None and bucket.is_last and self._follows:
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

    def end(self) -> None:
        """Close the connections to the other workers."""
        self._waits.close()
        self._group = None

    # -- what the workers agree on ------------------------------------------------------------

    def _begin_agreeing(self) -> None:
        """Begin to find out when all workers have joined, and whether one knows of the end.

        A small all-reduce behind that of the last bucket: it arrives with it.
        """
        ended = self.observer is not None and self.observer.has_seen_end()
        mine = torch.tensor([time.monotonic_ns(), int(ended)])
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
        """The script has waited for this collective since `begun`."""
        self._waits.ended(call)
        if self.observer is not None and call.bucket is None:
            self.observer.waited(call, begun, time.monotonic_ns())

    def arrived(self, call: Call) -> None:
        """A bucket has arrived."""
        self._waits.ended(call)

    def failed(self, call: Call, error: Exception, begun: int) -> None:
        """Raise RunOver if the run is over, else RunError with what went wrong."""
        waited_s = seconds(Time(time.monotonic_ns() - begun))
        others = self._waits.others_than(call)
        if self.observer is not None:
            self.observer.broken(call)
        raise RunError(self._waits.explained(call, others, waited_s, error)) from None


class _Pending:
    """Implements `Pending`."""

    def __init__(self, owner: GlooCollectives, call: Call) -> None:
        self._owner, self.call = owner, call
        self.begun = time.monotonic_ns()
        self._work: Any = None
        self._is_over = False
        self._then: Callable[[], None] | None = None  # makes the outputs from what has arrived

    def begin(self, group: Any, size: int) -> None:
        if group is None:
            self._copy_alone()
        else:
            self._work, self._then = _begun(group, self.call, size)

    def _copy_alone(self) -> None:
        with torch.no_grad():
            for given, into in zip(self.call.inputs, self.call.outputs, strict=False):
                if given is not into:
                    into.copy_(given)

    def wait(self) -> None:
        if self._is_over:
            return
        begun = time.monotonic_ns()
        observer = self._owner.observer
        if observer is not None and self._work is not None:
            while not self._work.is_completed() and observer.attend():
                time.sleep(_LOOK_S)
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
                self._work.wait()
            except RuntimeError as error:
                self._owner.failed(self.call, error, self.begun)
        if self._then is not None:
            with torch.no_grad():
                self._then()
        self._is_over = True

    def is_done(self) -> bool:
        return self._is_over or self._work is None or bool(self._work.is_completed())

    def sender(self) -> int:
        return int(self._work._source_rank())

    def future(self) -> torch.futures.Future[Any]:
        if self._work is not None and self._then is None:
            found: torch.futures.Future[Any] = self._work.get_future()
            return found
        self.wait()
        done: torch.futures.Future[Any] = torch.futures.Future()
        done.set_result(list(self.call.outputs))
        return done


def _begun(group: Any, call: Call, size: int) -> tuple[Any, Callable[[], None] | None]:
    """Begin a collective; return its `Work`, and what to do once it is over."""
    inputs, outputs, kind = list(call.inputs), list(call.outputs), call.kind
    if kind == "all_reduce":
        options = _options(c10d.AllreduceOptions(), call)
        works = [group.allreduce([tensor], options) for tensor in outputs]
        return _all(works), _divided(outputs, size) if call.operation == "avg" else None
    if kind == "broadcast":
        options = _options(c10d.BroadcastOptions(), call)
        return _all([group.broadcast([tensor], options) for tensor in outputs]), None
    if kind == "all_gather":
        return group.allgather([outputs], inputs, _options(c10d.AllgatherOptions(), call)), None
    if kind == "reduce":
        options = _options(c10d.ReduceOptions(), call)
        then = _divided(outputs, size) if call.operation == "avg" else None
        return _all([group.reduce([tensor], options) for tensor in inputs]), then
    if kind == "gather":
        options = _options(c10d.GatherOptions(), call)
        return group.gather([outputs] if outputs else [], inputs, options), None
    if kind == "scatter":
        options = _options(c10d.ScatterOptions(), call)
        return group.scatter(outputs, [inputs] if inputs else [], options), None
    if kind == "reduce_scatter":  # Gloo has none: add everything up, and keep a part
        (output,), values = outputs, torch.stack(inputs)
        work = group.allreduce([values], _options(c10d.AllreduceOptions(), call))
        divisor = size if call.operation == "avg" else 1
        rank = group.rank()
        return work, lambda: _keep(output, values[rank], divisor)
    if kind == "all_to_all":
        return _all_to_all(group, call, inputs, outputs)
    if kind == "barrier":
        return group.barrier(_options(c10d.BarrierOptions(), call)), None
    if kind == "send":
        return group.send(inputs, call.root, call.tag), None
    if call.root < 0:
        return group.recv_anysource(outputs, call.tag), None
    return group.recv(outputs, call.root, call.tag), None


def _options(options: Any, call: Call) -> Any:
    options.timeout = timedelta(seconds=call.timeout_s)
    with contextlib.suppress(AttributeError):
        options.reduceOp = _OPERATIONS[call.operation]
    if call.root >= 0:
        options.rootRank = call.root
    return options


def _all_to_all(
    group: Any, call: Call, inputs: list[torch.Tensor], outputs: list[torch.Tensor]
) -> tuple[Any, Callable[[], None]]:
    given = torch.cat([tensor.reshape(-1) for tensor in inputs])
    into = torch.cat([torch.empty_like(tensor).reshape(-1) for tensor in outputs])
    sizes = [[tensor.numel() for tensor in tensors] for tensors in (outputs, inputs)]
    work = group.alltoall_base(into, given, *sizes, _options(c10d.AllToAllOptions(), call))

    def take() -> None:
        for tensor, values in zip(outputs, torch.split(into, sizes[0]), strict=True):
            tensor.copy_(values.view(tensor.shape))

    return work, take


def _divided(outputs: list[torch.Tensor], size: int) -> Callable[[], None]:
    def divide() -> None:
        for tensor in outputs:
            tensor.div_(size)

    return divide


def _keep(output: torch.Tensor, values: torch.Tensor, divisor: int) -> None:
    output.copy_(values.view(output.shape))
    if divisor != 1:
        output.div_(divisor)


class _All:
    """Several works as one, without a future."""

    def __init__(self, works: list[Any]) -> None:
        self._works = works

    def wait(self) -> None:
        for work in self._works:
            work.wait()

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self._works)

    def get_future(self) -> torch.futures.Future[Any]:
        return torch.futures.collect_all([work.get_future() for work in self._works])


def _all(works: list[Any]) -> Any:
    return works[0] if len(works) == 1 else _All(works)
