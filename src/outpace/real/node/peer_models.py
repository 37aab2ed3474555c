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

    The methods implemented here are for a task: a task does not make the models of workers differ.
    """

    trainer: Trainer
    tail: int = 0  # number of elements that are sent after the values
    tail_dtype: torch.dtype | None = None  # dtype of the tail; None: dtype of the values
    averages_in_place: bool = False  # all-reduces only average, and may change gradients in place
    device: torch.device | None = None  # None for several devices, or for a task on the CPU

    def state_digest(self) -> str:
        """Return the digest of the optimizer's initial state, if it must be equal in all.

        It is empty if there is no state yet, or if workers may differ.
        """
        return ""

    def parameters(self, *, on_gpu: bool = False) -> torch.Tensor | Phantom:
        """Return a copy of the initial parameters as one vector.

        Args:
            on_gpu: True: exchange values on the GPU from now on; False: on the CPU.
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
        """Return the digests to compare between workers in this all-reduce."""
        return Digests()

    def compare(self, number: int, digests: Mapping[int, Digests]) -> None:
        """Report differences between workers after an all-reduce, by their digests."""

    def refused(self) -> None:
        """Report that a gradient was left out of an all-reduce because it was not finite."""

    def version_of(self, at: Parameters) -> int | None:
        """Return the number of commits in `at`; None if it is not the common model or a replica."""

    def computing_at(self, at: Parameters) -> AbstractContextManager[Sequence[Block]]:
        """Return the context for computing a gradient at `at`; it yields the parameters."""
