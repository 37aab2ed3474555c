"""Compare the calls of one collective by all workers, and describe their differences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch

from outpace.engine.distributed.call import Bucket, Call

COMBINING: Final = ("all_reduce", "reduce", "reduce_scatter")
ROOTED: Final = ("broadcast", "reduce", "gather", "scatter")
REMEDY: Final = (
    "call the same collectives in the same order in all workers; if they have different numbers "
    "of batches, use DistributedDataParallel's join(), or a sampler that gives all workers the "
    "same number"
)


def own_elements(kind: str, given: int, taken: int) -> int:
    """Return the number of elements of one member's tensors: inputs (given), or outputs (taken)."""
    return taken if kind in ("broadcast", "scatter") else given


def words(
    kind: str, operation: str, elements: int, dtype: object, root: int, bucket: Bucket | None
) -> str:
    """Describe what must be the same for all workers. elements: see `own_elements`."""
    if kind == "barrier":
        return kind
    what = [kind]
    if kind in COMBINING:
        what.append(operation)
    if kind != "all_to_all":
        what.append(f"of {elements:,} elements")
    what.append(str(dtype).removeprefix("torch."))
    if kind in ROOTED:
        what.append(f"with root {root}")
    if bucket is not None:
        what.append(f"(gradient bucket {bucket.index})")
    return " ".join(what)


def words_of(call: Call) -> str:
    """Describe what must be the same in the calls of all workers."""
    tensors: tuple[Any, ...] = call.inputs or call.outputs
    given, taken = (sum(t.numel() for t in each) for each in (call.inputs, call.outputs))
    dtype = tensors[0].dtype if tensors else torch.uint8
    elements = own_elements(call.kind, given, taken)
    return words(call.kind, call.operation, elements, dtype, call.root, call.bucket)


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
