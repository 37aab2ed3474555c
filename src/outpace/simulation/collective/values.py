"""The results of collectives of torch.distributed, computed in one place.

Sums and products are made in the order of ranks, in the dtype of the tensors. So with two ranks a
sum is bitwise equal to Gloo's; with more ranks, a library adds in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import torch

from outpace.errors import ConfigError

Flat: TypeAlias = torch.Tensor  # shape (elements,)

_IN_PLACE: Final[dict[str, Callable[[torch.Tensor, torch.Tensor], object]]] = {
    "sum": torch.Tensor.add_,
    "avg": torch.Tensor.add_,
    "product": torch.Tensor.mul_,
    "band": torch.Tensor.bitwise_and_,
    "bor": torch.Tensor.bitwise_or_,
    "bxor": torch.Tensor.bitwise_xor_,
    "min": lambda total, value: torch.minimum(total, value, out=total),
    "max": lambda total, value: torch.maximum(total, value, out=total),
}


def results_of(
    kind: str, op: str, root: int, values: Sequence[Flat], parts: Sequence[Sequence[int]]
) -> list[Flat | None]:
    """Return the values of each rank after a collective; None: the values do not change.

    Args:
        kind: all_reduce, reduce, broadcast, all_gather, gather, scatter, reduce_scatter,
            all_to_all, or barrier.
        op: how values are combined, such as "sum"; only for all_reduce, reduce, reduce_scatter.
        root: the rank of a broadcast, reduce, gather, or scatter.
        values: the values of each rank, its tensors one after the other; all of one dtype.
        parts: numbers of elements of each rank's tensors.

    Raises:
        ConfigError: if there is no such operation for the dtype.
    """
    ranks = range(len(values))
    if kind == "barrier":
        return [None for _ in ranks]
    if kind == "all_reduce":
        return [_combined(op, values)] * len(values)
    if kind == "reduce":
        return _at(root, _combined(op, values), len(values))
    if kind == "broadcast":
        return [None if rank == root else values[root] for rank in ranks]
    if kind == "all_gather":
        return [torch.cat(list(values))] * len(values)
    if kind == "gather":
        return _at(root, torch.cat(list(values)), len(values))
    if kind == "scatter":
        return list(values[root].clone().chunk(len(values)))
    if kind == "reduce_scatter":
        return list(_combined(op, values).chunk(len(values)))
    pieces = [torch.split(value, list(sizes)) for value, sizes in zip(values, parts, strict=True)]
    return [torch.cat([given[rank] for given in pieces]) for rank in ranks]


def _at(root: int, value: Flat, ranks: int) -> list[Flat | None]:
    return [value if rank == root else None for rank in range(ranks)]


def _combined(op: str, values: Sequence[Flat]) -> Flat:
    """Return the combination of the values of all ranks, in the order of ranks."""
    combine, total = _IN_PLACE[op], values[0].clone()
    try:
        for value in values[1:]:
            combine(total, value)
        return total.div_(len(values)) if op == "avg" else total
    except (RuntimeError, TypeError) as error:
        raise ConfigError(
            f"torch.distributed: the operation {op} cannot be made with {total.dtype}: {error}"
        ) from error
