"""The optimizer of a server's part of the parameters, and its state as it travels."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from outpace.blocks.block import Block, whole
from outpace.engine.scripts.optimizer_state import lengths_of
from outpace.kernel import Future, Kernel
from outpace.optim import Optimizer
from outpace.optim.python import PythonOptimizer
from outpace.optim.torch_optimizers import Groups, State, TorchOptimizer, TorchSteps
from outpace.real.net.messages import Initialize, StateEntry
from outpace.real.node.optimizer_state import bytes_due, entries_of, state_from
from outpace.sync.parameter_block import ParameterBlock, TensorBlock


class ServerOptimizer:
    """The configuration's optimizer, or the one that a script attached, and its state.

    Only the state of an optimizer of torch travels; the state of others is empty.

    Args:
        configured: the configuration's.
    """

    def __init__(self, kernel: Kernel, configured: Optimizer) -> None:
        self._configured = configured
        self._steps: TorchSteps | None = None  # of the block; None: there is no state that travels
        self._lengths: dict[int, int] = {}  # elements of each tensor of the model in the part
        self._initial = Future[dict[int, State]](kernel, "the optimizer's state")

    def set_groups(self, groups: Groups) -> None:
        """Take the parameter groups of the part; see `Initialize`."""
        self._lengths = lengths_of(groups)

    def settings(self, attached: Initialize) -> Optimizer:
        """Return the settings for a block: the configuration's, or of what a script attached."""
        configured = self._configured
        if not attached.optimizer:
            return configured
        if isinstance(configured, PythonOptimizer):  # code named by the configuration
            return configured.of_groups(attached.groups, attached.settings)
        return TorchOptimizer(attached.optimizer, attached.groups, attached.settings)

    def steps_on(self, block: ParameterBlock) -> None:
        """Have the state of this block, which was made with `settings`, from now on."""
        if isinstance(block, TensorBlock) and isinstance(block.take_step, TorchSteps):
            self._steps = block.take_step

    # -- its state ---------------------------------------------------------------------

    def bytes_due(self, entries: Sequence[StateEntry]) -> int | None:
        """Return the size of the tensors of these entries; None if they are not of the part."""
        return bytes_due(entries, self._lengths)

    async def load_initial_state(self) -> None:
        """Wait for the state to begin with, and load it."""
        if self._steps is not None:
            self._steps.load(await self._initial)

    def may_load(self, *, has_begun: bool) -> bool:
        """True if a state may arrive now. has_begun: there is a shard, which has its state."""
        return self._steps is not None if has_begun else not self._initial.done

    def load(self, entries: Sequence[StateEntry], data: Block, *, has_begun: bool) -> None:
        """Replace the state by one that has arrived, or keep it for the block to begin with."""
        tensors = whole(data)
        assert isinstance(tensors, torch.Tensor)
        state = state_from(entries, tensors)
        if has_begun:
            assert self._steps is not None
            self._steps.load(state)
        else:
            self._initial.set(state)

    def state(self) -> tuple[list[StateEntry], torch.Tensor]:
        """Return the state as it is sent: its entries, and the bytes of its tensors."""
        return entries_of({} if self._steps is None else self._steps.state())
