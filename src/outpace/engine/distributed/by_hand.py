"""Scripts that average their gradients themselves, without DistributedDataParallel.

    loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
    optimizer.step()

They run where the script's own collectives train (`sync.kind=ssgd`). The run begins with the first
forward pass, with gradients, of a module that has parameters of an optimizer.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch._compile import _disable_dynamo
from torch.nn.modules.module import register_module_forward_pre_hook

from outpace.engine.distributed.optimizers import Optimizers
from outpace.support.place import HERE


class ByHand:
    """The model of such a script, and how far its backward pass is.

    Args:
        optimizers: those that the script has made.
        begin: begins the run with a module and its optimizer; sets `HERE.worker`.
    """

    def __init__(
        self,
        optimizers: Optimizers,
        begin: Callable[[torch.nn.Module, torch.optim.Optimizer], None],
    ) -> None:
        self._optimizers, self._begin = optimizers, begin
        self._hook: torch.utils.hooks.RemovableHandle | None = None
        self._elements = 0  # of all gradients
        self._accumulated = 0  # of those that have come since the last forward pass

    def look(self) -> None:
        """Look for the first forward pass."""
        if self._hook is None:
            self._hook = register_module_forward_pre_hook(self._first_forward)

    def look_no_more(self) -> None:
        """Do not look any more: the script has a model of DistributedDataParallel."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    @_disable_dynamo
    def _first_forward(self, module: torch.nn.Module, _: Any) -> None:
        if torch.is_grad_enabled() and HERE.worker is None:
            found = self._optimizers.of(module)
            if found:
                self.begin(found[0], module)

    @_disable_dynamo
    def before_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Begin the run if no forward pass came before: the parameters are in no module."""
        if self._hook is not None and HERE.worker is None:
            self.begin(optimizer, None)

    def begin(self, optimizer: torch.optim.Optimizer, module: torch.nn.Module | None) -> None:
        """Begin the run. module: whose forward pass begins; it may have a part of the parameters.

        Then, or without a module, the run numbers the parameters.
        """
        self.look_no_more()
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        inside = set() if module is None else {id(p) for p in module.parameters()}
        whole = module
        if whole is None or not all(id(p) in inside for p in parameters):
            whole = torch.nn.ParameterList(parameters)
        self._begin(whole, optimizer)
        for parameter in parameters:
            if parameter.requires_grad:
                self._elements += parameter.numel()
                parameter.register_post_accumulate_grad_hook(self._accumulate)
        if module is not None:
            self._module = weakref.ref(module)
            register_module_forward_pre_hook(self._enters)
            self._forward()

    @_disable_dynamo
    def _enters(self, module: torch.nn.Module, _: Any) -> None:
        """Note that a module's forward pass begins."""
        # A hook on the model itself would be copied and saved with it.
        if module is self._module():
            self._forward()

    def _forward(self) -> None:
        if torch.is_grad_enabled() and HERE.worker is not None:
            self._accumulated = 0
            HERE.worker.forward()

    @_disable_dynamo
    def _accumulate(self, parameter: torch.Tensor) -> None:
        self._accumulated += parameter.numel()

    def stepped(self) -> None:
        """The optimizer has taken a step."""
        self._accumulated = 0

    def share(self) -> float | None:
        """Return which share of a backward pass is done; None if it has not begun."""
        if not self._accumulated:
            return None
        autograd: Any = torch._C
        is_over = autograd._current_graph_task_id() == -1
        return 1.0 if is_over else min(1.0, self._accumulated / self._elements)
