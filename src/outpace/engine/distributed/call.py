"""A collective that a script calls, and the interfaces of the objects that carry it out.

The runtime makes one `Collectives` for the default process group of a script's process: in a real
run it uses Gloo, in virtual time a pipe to the simulation.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias, TypeVar

import torch
from torch._compile import _disable_dynamo

# parts of torch.distributed have no type annotations
c10d: Any = torch.distributed.distributed_c10d

KindT = TypeVar("KindT", bound=type)
Kind: TypeAlias = Literal[
    "all_reduce",
    "broadcast",
    "all_gather",
    "reduce",
    "gather",
    "scatter",
    "reduce_scatter",
    "all_to_all",
    "barrier",
]
Operation: TypeAlias = Literal["sum", "avg", "product", "min", "max", "band", "bor", "bxor"]

COMBINING: Final = ("all_reduce", "reduce", "reduce_scatter")
ROOTED: Final = ("broadcast", "reduce", "gather", "scatter")
REMEDY: Final = (
    "call the same collectives in the same order in all workers; if they have different numbers "
    "of batches, use DistributedDataParallel's join(), or a sampler that gives all workers the "
    "same number"
)


@dataclass(frozen=True, slots=True)
class Bucket:
    """The place of a gradient bucket of DistributedDataParallel in its backward pass.

    Attributes:
        index: number of the bucket in this backward pass, from 0.
        elements: number of gradient elements in the bucket.
        handed_over: number of gradient elements in this bucket and in the earlier ones.
        total: number of gradient elements in all buckets of the pass.
    """

    index: int
    elements: int
    handed_over: int
    total: int

    @property
    def is_last(self) -> bool:
        """True for the last bucket of the backward pass."""
        return self.handed_over >= self.total


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Signature:
    """One process's part in a collective, without its tensors.

    Attributes:
        number: number of the call, from 0, in the order in which this process began its calls.
        where: the line of the script, such as `train.py:41`.
        operation: operation of all_reduce, reduce and reduce_scatter.
        root: rank of the root; -1: there is none.
        bucket: set if DistributedDataParallel all-reduces a gradient bucket.
        dtype: dtype of the tensors.
        parts: numbers of elements of the inputs.
        elements: number of elements of all outputs together.
    """

    number: int
    kind: Kind
    where: str
    operation: Operation = "sum"
    root: int = -1
    bucket: Bucket | None = None
    dtype: torch.dtype = torch.uint8
    parts: tuple[int, ...] = ()
    elements: int = 0

    def __str__(self) -> str:
        return f"{self.kind} at {self.where}"

    def attributes(self) -> dict[str, Any]:
        """Return these attributes by name."""
        return {each.name: getattr(self, each.name) for each in fields(Signature)}

    @property
    def own_elements(self) -> int:
        """Number of elements of the inputs; if only the root gives inputs, of the outputs."""
        return self.elements if self.kind in ("broadcast", "scatter") else sum(self.parts)

    def words(self) -> str:
        """Describe as text the data that must be equal in the calls of all workers."""
        if self.kind == "barrier":
            return self.kind
        what: list[str] = [self.kind]
        if self.kind in COMBINING:
            what.append(self.operation)
        if self.kind != "all_to_all":
            what.append(f"of {self.own_elements:,} elements")
        what.append(str(self.dtype).removeprefix("torch."))
        if self.kind in ROOTED:
            what.append(f"with root {self.root}")
        if self.bucket is not None:
            what.append(f"(gradient bucket {self.bucket.index})")
        return " ".join(what)


def difference(calls: Mapping[int, tuple[str, str]]) -> str:
    """Return which of these calls differ; empty if none do.

    calls: the words and the line of each worker's call, by worker.
    """
    first = min(calls)
    for worker in sorted(calls):
        if calls[worker][0] != calls[first][0]:
            return ", but ".join(
                f"worker-{each} called {calls[each][0]} at {calls[each][1]}"
                for each in (first, worker)
            )
    return ""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Call(Signature):
    """One process's part in a collective. N: number of processes; all results are in `outputs`.

    | kind | inputs | outputs |
    |---|---|---|
    | all_reduce | tensors | the same tensors: in place |
    | broadcast | the root: tensors, else none | tensors; the root's are its inputs |
    | all_gather | one tensor | by rank |
    | reduce | tensors | the root: the same tensors, in place; else none |
    | gather | one tensor | the root: by rank; else none |
    | scatter | the root: by rank; else none | one tensor |
    | reduce_scatter | by rank | one tensor |
    | all_to_all | N tensors, by receiver | by sender |
    | barrier | none | none |

    Values by rank, receiver or sender are in N tensors, or one after the other in one tensor.

    Attributes:
        start: starts the operation in a group of torch, with the arguments given by torch; returns
            its `Work`.
        timeout_s: longest time for which this process waits for the others.
        waits: True: the script waits for the end of the call before it does anything else.
    """

    start: Callable[[Any], Any]
    inputs: tuple[torch.Tensor, ...] = ()
    outputs: tuple[torch.Tensor, ...] = ()
    timeout_s: float = 1800.0
    waits: bool = False


def not_compiled(kind: KindT) -> KindT:
    """Decorate a class whose methods are never compiled.

    torch.compile compiles every Python function that is called while the compiled model runs,
    including functions called from C++: the group's collectives and the functions that wait for
    them.
    """
    methods: dict[str, Any] = {
        name: method for name, method in vars(kind).items() if inspect.isfunction(method)
    }
    for name, method in methods.items():
        setattr(kind, name, _disable_dynamo(method))
    return kind


@not_compiled
class CollectiveWork(c10d.Work):  # type: ignore[misc]
    """A collective that has begun, as torch's `Work`; in this class it is over.

    Other classes override `wait`, `is_completed` and `get_future`.
    """

    def __init__(self, outputs: Sequence[torch.Tensor] = ()) -> None:
        super().__init__()
        self.outputs = list(outputs)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until the outputs have their values; later calls return at once.

        Raises:
            RunError: the collective failed, or another process did not join it in time.
            RunOver: the run has ended.
        """
        return True

    def is_completed(self) -> bool:
        """True if `wait` would return at once."""
        return True

    def get_future(self) -> torch.futures.Future[Any]:
        """Return a future of the outputs, on which C++ may wait.

        For a gradient bucket this returns at once; `Collectives.finish` sets the future.
        """
        found: torch.futures.Future[Any] = torch.futures.Future()
        found.set_result(self.outputs)
        return found

    def is_success(self) -> bool:
        return self.is_completed()

    def result(self) -> list[torch.Tensor]:
        return self.outputs

    def synchronize(self) -> None:
        self.wait()

    def exception(self) -> None:
        return None


class Collectives:
    """Carries out the collectives of a script's processes.

    Attributes:
        rank, size: rank of this process, and number of processes.
    """

    rank: int
    size: int

    def begin(self, call: Call) -> CollectiveWork:
        """Begin a collective. Must not block, except for a collective of one process."""
        raise NotImplementedError

    def finish(self, buckets: Sequence[CollectiveWork]) -> None:
        """Wait for all buckets at the end of a backward pass. Raises like `CollectiveWork.wait`."""
        for bucket in buckets:
            bucket.wait()


class Alone(Collectives):
    """Carries out collectives of this process alone, as copies.

    DistributedDataParallel is given such a group if the strategy exchanges the gradients.
    """

    rank = 0
    size = 1
    has_reduced = False  # True once a backward pass has all-reduced its gradients

    def begin(self, call: Call) -> CollectiveWork:
        """Copy the inputs to the outputs."""
        self.has_reduced |= call.kind == "all_reduce"
        with torch.no_grad():
            for given, into in zip(call.inputs, call.outputs, strict=False):
                if given is not into:
                    into.copy_(given)
        return CollectiveWork(call.outputs)
