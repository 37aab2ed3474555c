"""The interface of the parameters that a worker without servers trains."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import torch

from outpace.blocks.block import Block, Phantom, Value
from outpace.real.node.worker_process import Trainer
from outpace.sync.peers.context import CommonParameters, OwnParameters, Parameters


class PeerModels(Protocol):
    """The common and own parameters of one worker; see `PeerContext`."""

    @property
    def trainer(self) -> Trainer: ...

    @property
    def tail(self) -> int:
        """Number of elements that travel behind the values."""

    @property
    def averages_in_place(self) -> bool:
        """True if only means of gradients are asked for, which may be divided where they are."""

    @property
    def device(self) -> torch.device | None:
        """Device of the parameters; None: several, or the CPU."""

    def parameters(self, *, on_gpu: bool = False) -> torch.Tensor | Phantom:
        """Return a copy of the initial parameters as one vector.

        Args:
            on_gpu: exchange values there from now on, rather than on the CPU.
        """

    def start_from(self, parameters: torch.Tensor) -> None:
        """Replace the initial parameters."""

    def prepare(self) -> None:
        """Make the models, before the time of the run begins."""

    def common(self) -> CommonParameters: ...

    def own(self) -> OwnParameters: ...

    def change_own(self, by: torch.Tensor) -> None:
        """Add this to the worker's own parameters, as soon as that is possible."""

    def now_trained(self) -> Value:
        """Return the common parameters, or else the worker's own; they stay as they are."""

    def refused(self) -> None:
        """Report that a gradient was not finite, and so was not given to the others."""

    def version_of(self, at: Parameters) -> int | None:
        """Return the number of commits in it; None: it is neither common nor a replica."""

    def computing_at(self, at: Parameters) -> AbstractContextManager[Sequence[Block]]:
        """Enter while a gradient is computed there; yields the parameters for the trainer."""
