"""Finds steps of other optimizers than the one that the run has taken over.

The steps of an optimizer that has parameters of the model would be lost, or each worker's own, so
they are refused. An optimizer of other parameters trains on each worker alone, which is said.

An optimizer may also be around the run's, and take its steps by it (Lookahead, accelerate's), or
within it (SAM's): these are no others.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from outpace.engine.distributed.compiling import not_compiled
from outpace.engine.distributed.where import innermost, where
from outpace.engine.scripts.model import ScriptModel
from outpace.errors import ConfigError
from outpace.support.place import HERE
from outpace.support.words import shortened


@not_compiled
class OtherOptimizers:
    """Looks at each step of the optimizers of this process, until the script leaves the run."""

    def __init__(self, script: ScriptModel) -> None:
        self._script = script
        self._pid = os.getpid()
        self._steps = 0  # that the optimizer of the run has begun
        self._is_stepping = False  # it takes one
        # Of other optimizers that take a step: the number of those steps when it began.
        self._begun = weakref.WeakKeyDictionary[torch.optim.Optimizer, int]()
        self._has_told = False
        self._handles = [
            register_optimizer_step_pre_hook(self._begins),
            register_optimizer_step_post_hook(self._ended),
        ]

    def close(self) -> None:
        """Look at no more steps."""
        for handle in self._handles:
            handle.remove()

    def _begins(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if optimizer is self._script.optimizer:
            self._steps += 1
            self._is_stepping = True
        elif not self._is_stepping:
            self._begun[optimizer] = self._steps

    def _ended(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if optimizer is self._script.optimizer:
            self._is_stepping = False
        elif self._begun.pop(optimizer, None) == self._steps and os.getpid() == self._pid:
            self._look_at(optimizer)

    def _look_at(self, optimizer: torch.optim.Optimizer) -> None:
        """Judge an optimizer that has taken a step without that of the run.

        Raises:
            ConfigError: if it has parameters of the model.
        """
        trained = {id(p) for p in _trained_by(optimizer)}
        names = [name for name, p in self._script.model.named_parameters() if id(p) in trained]
        other = f"{type(optimizer).__name__} at {where(innermost())}"
        if names:
            raise ConfigError(
                f"worker-{HERE.number}: the optimizer {other} took a step of parameters of the "
                f"model ({shortened(names)}), but the run has the steps of another one, the "
                f"{type(self._script.optimizer).__name__} that it began with: use one optimizer "
                "with parameter groups. For a new phase set their settings (lr=0 in groups that "
                "rest), and load_state_dict({**optimizer.state_dict(), 'state': {}}) if its state "
                "is to begin anew. Or use DistributedDataParallel with sync.kind=ssgd, where a "
                "script may have several"
            )
        if trained and HERE.workers > 1 and not self._has_told:
            self._has_told = True
            HERE.tell(
                f"the optimizer {other} trains parameters that are not in the model of the run: "
                "each worker trains them alone. To share them, put all into one module with one "
                "optimizer, or use DistributedDataParallel with sync.kind=ssgd"
            )


def _trained_by(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """Return the parameters of an optimizer that have a gradient."""
    return (p for group in optimizer.param_groups for p in group["params"] if p.grad is not None)
