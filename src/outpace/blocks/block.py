"""Blocks: the parts of the flat parameter vector that are sent between processes.

A *block* is the part of the flat parameter vector that one shard owns: a 1-D tensor, `Pieces`
of one, a `Deferred` one that is computed when it is read, or a `Phantom` of its size where only
timing matters. The receiver of a block owns it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeAlias

import msgspec
import torch


class Phantom(msgspec.Struct, frozen=True, gc=False):
    """Stands for a block of `nbytes` bytes where only timing matters; arithmetic does nothing."""

    nbytes: int

    def add_(self, other: object) -> Phantom:
        return self

    def div_(self, divisor: float) -> Phantom:
        return self

    def clone(self) -> Phantom:
        return self


class Pieces:
    """A 1-D tensor cut into consecutive parts, as it was received.

    Joining 25 MB costs as much as adding them. So a large block stays in the memory in which the
    network layer received it until it is used in a computation.

    Args:
        parts: Blocks that are added to each other must be cut in the same way. The last parts may
            have another dtype than the first; `dtype` is the dtype of the first.
        finite: True if all entries are finite; None if that is unknown.
        is_shared: True if another process can write to it as well.
    """

    __slots__ = ("__weakref__", "dtype", "finite", "is_shared", "nbytes", "parts")

    def __init__(
        self,
        parts: Sequence[torch.Tensor],
        finite: bool | None = None,
        *,
        is_shared: bool = False,
    ) -> None:
        self.parts, self.finite, self.is_shared = parts, finite, is_shared
        self.dtype = parts[0].dtype
        self.nbytes: int = sum(part.nbytes for part in parts)

    def numel(self) -> int:
        return sum(part.numel() for part in self.parts)

    def add_(self, other: Pieces) -> Pieces:
        """Add another block in place and return this one."""
        self.finite = None
        for mine, theirs in zip(self.parts, other.parts, strict=True):
            mine.add_(theirs)
        return self

    def div_(self, divisor: float) -> Pieces:
        """Divide in place and return this block."""
        for part in self.parts:
            part.div_(divisor)
        return self

    def clone(self) -> Pieces:
        """Return a copy in new memory, cut in the same way."""
        return Pieces([part.clone() for part in self.parts], self.finite)

    def whole(self) -> torch.Tensor:
        """Return a copy in one piece."""
        return torch.cat(list(self.parts))

    def copy_to(self, target: torch.Tensor) -> None:
        """Copy into a 1-D tensor of the same length."""
        for part, place in zip(self.parts, self.split(target), strict=True):
            place.copy_(part)

    def split(self, block: torch.Tensor | Pieces) -> Sequence[torch.Tensor]:
        """Cut a block of the same length in the same way; parts are copies where needed."""
        lengths = [part.numel() for part in self.parts]
        if isinstance(block, Pieces):
            if [part.numel() for part in block.parts] == lengths:
                return block.parts
            block = block.whole()
        return torch.split(block, lengths)


class Deferred:
    """Stands for a 1-D tensor of `length` entries that is computed when it is read, perhaps never.

    `compute()` returns the tensor, perhaps in pieces; it is called at most once.
    """

    __slots__ = ("_compute", "_length", "dtype", "nbytes")

    def __init__(
        self, length: int, dtype: torch.dtype, compute: Callable[[], torch.Tensor | Pieces]
    ) -> None:
        self._length, self.dtype, self._compute = length, dtype, compute
        self.nbytes: int = length * dtype.itemsize

    def numel(self) -> int:
        return self._length

    def value(self) -> torch.Tensor | Pieces:
        """Compute the tensor, which then belongs to the caller; to be called once.

        Raises every exception of the computation.
        """
        return self._compute()


Value: TypeAlias = torch.Tensor | Pieces | Phantom
Block: TypeAlias = Value | Deferred


class StepSettings(msgspec.Struct, forbid_unknown_fields=True):
    """Settings of a user's own optimizer for one step; they are sent with the gradient."""

    groups: list[dict[str, Any]]  # the settings (such as lr) of each parameter group
    # Numbers of the parameters without a gradient, which the step does not change.
    unused: list[Annotated[int, msgspec.Meta(ge=0, lt=2**31)]] = []


def differences(settings: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> str:
    """Return how the settings of two optimizers' parameter groups differ; empty if they do not."""
    several = len(settings) > 1
    found = [
        f"{key}{f' of parameter group {number}' * several} {group.get(key)} and {theirs.get(key)}"
        for number, (group, theirs) in enumerate(zip(settings, others, strict=False))
        for key in {**group, **theirs}
        if repr(group.get(key)) != repr(theirs.get(key))
    ]
    if len(settings) != len(others):
        found.append(f"{len(settings)} and {len(others)} parameter groups")
    return "; ".join(found)


def value_of(block: Block) -> Value:
    """Return the block, computed now if it is deferred."""
    return block.value() if isinstance(block, Deferred) else block


def whole(block: Block) -> torch.Tensor | Phantom:
    """Return the block in one piece."""
    value = value_of(block)
    return value.whole() if isinstance(value, Pieces) else value


def whole_tensor(block: Block) -> torch.Tensor:
    """Return the values of a block as one tensor; the block is not a `Phantom`."""
    tensor = whole(block)
    assert isinstance(tensor, torch.Tensor), "the block has values"
    return tensor


def parts(block: Block) -> Sequence[torch.Tensor]:
    """Return the consecutive tensors of a block."""
    value = value_of(block)
    if isinstance(value, Pieces):
        return value.parts
    return () if isinstance(value, Phantom) else (value,)


def parameters_digest(blocks: Sequence[Block]) -> str:
    """Return the SHA-256 of the flat parameter vector: its dtype, length and bytes."""
    digest = hashlib.sha256()
    tensors = [tensor for block in blocks for tensor in parts(block)]
    if tensors:
        flat = torch.cat(tensors)
        digest.update(f"{flat.dtype} {flat.numel()} ".encode())
        digest.update(flat.view(torch.uint8).numpy().tobytes())
    else:
        digest.update(f"phantom {sum(block.nbytes for block in blocks)}".encode())
    return digest.hexdigest()
