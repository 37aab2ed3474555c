"""A process group of torch.distributed that hands each collective to the run.

torch calls the group's methods: from Python for the script's own collectives, from C++ for the
collectives of DistributedDataParallel. The names and signatures of the methods are torch's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from operator import methodcaller
from typing import Any, Final, get_args

import torch
import torch.distributed as dist

from outpace.engine.distributed.backward import BackwardPass
from outpace.engine.distributed.call import (
    COMBINING,
    ROOTED,
    Bucket,
    Call,
    Collectives,
    CollectiveWork,
    Kind,
    Operation,
    c10d,
    not_compiled,
)
from outpace.engine.distributed.where import called_by_reducer, innermost, where
from outpace.errors import ConfigError

_OPERATIONS: Final[tuple[Operation, ...]] = get_args(Operation)


def _method(kind: Kind, method: str) -> Callable[..., CollectiveWork]:
    """Return a method of the group that begins a call of this kind.

    method: the method of a backend's group. Its arguments are tensors in place, or outputs and
    inputs, and options.
    """

    def begin(group: OutpaceGroup, *arguments: Any) -> CollectiveWork:
        *tensors, opts = arguments
        outputs, inputs = _listed(tensors[0]), _listed(tensors[-1])
        if kind in ROOTED and opts.rootRank != group.rank():
            if kind in ("broadcast", "scatter"):
                inputs = []
            else:
                outputs = []
        return group._begin(kind, method, arguments, inputs, outputs)

    return begin


def _listed(tensors: Any) -> list[torch.Tensor]:
    """Return tensors that torch gives as a list, as a list in a list, or as one tensor."""
    if isinstance(tensors, torch.Tensor):
        return [tensors]
    is_nested = bool(tensors) and not isinstance(tensors[0], torch.Tensor)
    return list(tensors[0] if is_nested else tensors)


@not_compiled
class OutpaceGroup(c10d.ProcessGroup):  # type: ignore[misc]
    """A group of all processes of the run, or of this process alone.

    Args:
        collectives: carries the collectives out.
        timeout_s: longest wait for the other processes, unless a call has its own.
        backward: the backward pass whose gradient buckets this group all-reduces.
        numbers: gives each call its number.
    """

    def __init__(
        self,
        collectives: Collectives,
        timeout_s: float,
        backward: BackwardPass,
        numbers: Iterator[int],
    ) -> None:
        super().__init__(collectives.rank, collectives.size)
        self._collectives, self.timeout_s = collectives, timeout_s
        self._backward, self._numbers = backward, numbers
        self._name = ""

    # -- what torch asks a group --------------------------------------------------------------

    def getBackendName(self) -> str:  # noqa: N802
        return "outpace"

    def getGroupName(self) -> str:  # noqa: N802
        return self._name

    def setGroupName(self, name: str) -> None:  # noqa: N802
        self._name = name

    def set_timeout(self, timeout: timedelta) -> None:
        self.timeout_s = timeout.total_seconds()

    def shutdown(self) -> None:
        """Close nothing, because other workers may still read values that this worker has sent."""

    abort = shutdown

    def __repr__(self) -> str:
        return f"OutpaceGroup(rank={self.rank()}, size={self.size()})"

    # -- collectives ----------------------------------------------------------------------------

    def _begin(
        self,
        kind: Kind,
        method: str,
        arguments: tuple[Any, ...],
        inputs: Sequence[torch.Tensor] = (),
        outputs: Sequence[torch.Tensor] = (),
        bucket: Bucket | None = None,
    ) -> CollectiveWork:
        """Begin a call.

        Args:
            method, arguments: method of a backend's group, and its arguments. The last argument of
                a collective has its options.
            bucket: the gradient bucket that is all-reduced.
        """
        line, opts = where(innermost()), arguments[-1]
        for tensor in inputs:
            if tensor.layout is not torch.strided:
                raise ConfigError(
                    f"{kind} at {line}: sparse tensors cannot be exchanged: make the embedding "
                    "dense"
                )
        timeout_s = self._timeout_of(opts)
        if hasattr(opts, "timeout"):
            opts.timeout = timedelta(seconds=timeout_s)
        call = Call(
            number=next(self._numbers),
            kind=kind,
            where=line,
            operation=_operation(opts) if kind in COMBINING else "sum",
            root=opts.rootRank if kind in ROOTED else -1,
            bucket=bucket,
            dtype=next((tensor.dtype for tensor in (*inputs, *outputs)), torch.uint8),
            parts=tuple(tensor.numel() for tensor in inputs),
            elements=sum(tensor.numel() for tensor in outputs),
            start=methodcaller(method, *arguments),
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            timeout_s=timeout_s,
            waits=not getattr(opts, "asyncOp", True),
        )
        return self._collectives.begin(call)

    def _timeout_of(self, opts: Any) -> float:
        timeout = getattr(opts, "timeout", None)
        if isinstance(timeout, timedelta) and timeout > timedelta(0):
            return timeout.total_seconds()
        return self.timeout_s

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        tensors, bucket, opts = _listed(tensors), None, opts or c10d.AllreduceOptions()
        is_gradient = self._backward.is_expected and tensors[0].is_floating_point()
        if is_gradient and called_by_reducer(innermost()):
            bucket = self._backward.bucket(sum(tensor.numel() for tensor in tensors))
        work = self._begin("all_reduce", "allreduce", (tensors, opts), tensors, tensors, bucket)
        if bucket is not None:
            self._backward.add(work, bucket, self._collectives)
        return work

    allreduce_coalesced = _method("all_reduce", "allreduce_coalesced")
    broadcast = _method("broadcast", "broadcast")
    reduce = _method("reduce", "reduce")
    allgather = _method("all_gather", "allgather")
    all_gather_single = _method("all_gather", "_allgather_base")
    gather = _method("gather", "gather")
    scatter = _method("scatter", "scatter")
    reduce_scatter = _method("reduce_scatter", "reduce_scatter")
    reduce_scatter_single = _method("reduce_scatter", "_reduce_scatter_base")
    alltoall = _method("all_to_all", "alltoall")

    def all_to_all_single(
        self, output: Any, value: Any, output_sizes: Any, input_sizes: Any, opts: Any
    ) -> Any:
        arguments = output, value, output_sizes, input_sizes, opts
        given = torch.split(value, input_sizes or [len(value) // self.size()] * self.size())
        return self._begin("all_to_all", "alltoall_base", arguments, given, [output])

    def barrier(self, opts: Any = None) -> Any:
        return self._begin("barrier", "barrier", (opts or c10d.BarrierOptions(),))

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        self.barrier().wait()

    # Names in earlier versions of torch.
    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single
    alltoall_base = all_to_all_single

    def new_group(
        self,
        ranks: Sequence[int],
        *,
        timeout: timedelta | None = None,
        group_name: str = "",
        group_desc: str | None = None,
        **_: Any,
    ) -> OutpaceGroup:
        """Return another group of all processes. Raises ConfigError for a part of the processes."""
        if list(ranks) != list(range(self.size())):
            raise ConfigError(
                f"new_group at {where(innermost())} has the ranks {list(ranks)} of "
                f"{self.size()} processes, but Outpace supports groups of all processes only: use "
                "the default group"
            )
        seconds = self.timeout_s if timeout is None else timeout.total_seconds()
        group = OutpaceGroup(self._collectives, seconds, self._backward, self._numbers)
        group._set_group_name(group_name)
        group._set_group_desc(group_desc or "undefined")
        return group


def _operation(opts: Any) -> Operation:
    for name in _OPERATIONS:
        if opts.reduceOp == getattr(dist.ReduceOp, name.upper()):
            return name
    raise ConfigError(
        f"{where(innermost())}: the reduction {opts.reduceOp} is not supported: use one of "
        f"{', '.join(_OPERATIONS).upper()}"
    )
