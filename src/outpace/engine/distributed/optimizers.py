"""Finds the optimizer of a model among those that a script makes, and takes part in its steps."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch._compile import _disable_dynamo

from outpace.errors import ConfigError


class Optimizers:
    """The optimizers that this process has made since `install` and still has.

    before_step: called at the beginning of each step of an optimizer. It may replace the class of
        the optimizer; then the step of the new class is taken. None: steps are not looked at.
    """

    def __init__(self, before_step: Callable[[torch.optim.Optimizer], None] | None = None) -> None:
        self._made: list[weakref.ref[torch.optim.Optimizer]] = []
        self._before_step = before_step

    def install(self) -> None:
        """Wrap `Optimizer.__init__`, so that optimizers made later are known."""
        kind: Any = torch.optim.Optimizer
        made, original = self._made, kind.__init__
        before_step = self._before_step

        @functools.wraps(original)
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            made.append(weakref.ref(self))
            if before_step is not None:
                _intercept(type(self), before_step)

        kind.__init__ = init

    def alive(self) -> list[torch.optim.Optimizer]:
        """Return the optimizers that still exist in the script."""
        return [found for reference in self._made if (found := reference()) is not None]

    def of(self, model: torch.nn.Module) -> list[torch.optim.Optimizer]:
        """Return the optimizers with parameters of this model; most elements first."""
        sizes = {id(p): p.numel() for p in model.parameters()}
        elements = [(_elements_in(optimizer, sizes), optimizer) for optimizer in self.alive()]
        found = sorted(elements, key=lambda pair: -pair[0])
        return [optimizer for count, optimizer in found if count]


def require_one(optimizers: Iterable[torch.optim.Optimizer], strategy: str) -> None:
    """Raise ConfigError if a model has several optimizers."""
    names = [type(optimizer).__name__ for optimizer in optimizers]
    if len(names) > 1:
        raise ConfigError(
            f"the model in DistributedDataParallel has {len(names)} optimizers "
            f"({', '.join(names)}), but sync.kind={strategy} needs one that has all its "
            "parameters: use one optimizer with several parameter groups, or sync.kind=ssgd"
        )


def _elements_in(optimizer: torch.optim.Optimizer, sizes: dict[int, int]) -> int:
    return sum(sizes.get(id(p), 0) for p in _members(optimizer))


def _members(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    return (p for group in optimizer.param_groups for p in group["params"])


def _intercept(kind: Any, before_step: Callable[[torch.optim.Optimizer], None]) -> None:
    """Have `before_step` called at the beginning of the steps of this class."""
    step = kind.step
    if getattr(step, "before_step", None) is before_step:
        return

    @_disable_dynamo
    @functools.wraps(step)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        before_step(self)
        now = type(self).step
        return (step if now is wrapped else now)(self, *args, **kwargs)

    # Hooks of steps run in `step`: others that look for the plain step must find it.
    plain = getattr(step, "__wrapped__", step) if hasattr(step, "hooked") else step
    wrapped.__wrapped__ = plain  # type: ignore[attr-defined]
    wrapped.before_step = before_step  # type: ignore[attr-defined]
    kind.step = wrapped
