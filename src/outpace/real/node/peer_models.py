"""The interface of the parameters that a worker without servers trains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import torch

from outpace.blocks.block import Block, Phantom, Value
from outpace.real.collective.buffers import Digests
from outpace.real.node.worker_process import Trainer
from outpace.sync.peers.context import CommonParameters, OwnParameters, Parameters


class PeerModels(Protocol):
    """The common and own parameters of one worker; see `PeerContext`.

    What is implemented here is right for a task, which cannot make workers differ.
    """

    trainer: Trainer
    tail: int = 0  # number of elements that are sent behind the values
    tail_dtype: torch.dtype | None = None  # of these elements; None: that of the values
    averages_in_place: bool = False  # all-reduces only average, and may change gradients in place
    device: torch.device | None = None  # None for several devices, or for a task on the CPU

    def state_digest(self) -> str:
        """Return the digest of the optimizer's initial state, if all workers must have the same.

        Empty if it has none yet, or if workers may differ.
        """
        return ""

    def parameters(self, *, on_gpu: bool = False) -> torch.Tensor | Phantom:
        """Return a copy of the initial parameters as one vector.

        Args:
            on_gpu: exchange values on the GPU from now on, rather than on the CPU.
        """

    def start_from(self, parameters: torch.Tensor) -> None:
        """Replace the initial parameters."""

    def prepare(self) -> None:
        """Create the common and own parameters, before the run starts."""

    def common(self) -> CommonParameters: ...

    def own(self) -> OwnParameters: ...

    def change_own(self, by: torch.Tensor) -> None:
        """Add a tensor to the worker's own parameters as soon as possible."""

    def now_trained(self) -> Value:
        """Return the common parameters, or else the own ones; later steps do not change them."""

    def digests(self, number: int) -> Digests:
        """Return what is compared between workers in this all-reduce."""
        return Digests()

    def compare(self, number: int, digests: Mapping[int, Digests]) -> None:
        """Say what differs between workers in an all-reduce that is over, by their digests."""

    def refused(self) -> None:
        """Report that a gradient was left out of an all-reduce because it was not finite."""

    def version_of(self, at: Parameters) -> int | None:
        """Return the number of commits in `at`; None if it is neither common nor a replica."""

    def computing_at(self, at: Parameters) -> AbstractContextManager[Sequence[Block]]:
        """Return the context of computing a gradient at `at`; yields the trainer's parameters."""
