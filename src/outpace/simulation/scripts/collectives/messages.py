"""The messages about collectives between the simulation and a script's process."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from outpace.engine.distributed.call import Bucket


@dataclass(frozen=True, slots=True)
class Joined:
    """The script has begun its part in a collective. The other attributes are those of `Call`.

    Attributes:
        dtype: of all tensors.
        parts: numbers of elements of the inputs.
        elements: of all outputs together.
        tag: of send and recv; their `root` is the other worker.
        place: where the inputs lie in the memory for collectives, one after the other, and where
            the outputs are expected; in bytes.
        progress: share of the computation of the present iteration that is done, in [0, 1].
    """

    number: int
    kind: str
    operation: str
    root: int
    where: str
    dtype: torch.dtype
    parts: tuple[int, ...]
    elements: int
    place: int
    bucket: Bucket | None
    progress: float
    tag: int = 0

    def __str__(self) -> str:
        return f"{self.kind} at {self.where}"


@dataclass(frozen=True, slots=True)
class Awaits:
    """The script waits for `Done`, the end of a collective."""

    number: int


@dataclass(frozen=True, slots=True)
class Reaches:
    """The script computes, and joins no collective before this share of its iteration is done."""

    progress: float


@dataclass(frozen=True, slots=True)
class Done:
    """A collective has ended.

    Attributes:
        has_outputs: True if this worker's outputs are in the memory; else they stay as they were.
        sender: of the message that a recv has received.
    """

    has_outputs: bool
    sender: int = -1
