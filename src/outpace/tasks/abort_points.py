"""Stops a computation at the next abort point: between modules, forward or backward."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch


class StopComputing(BaseException):
    """Raised at an abort point and caught by `AbortPoints.stopping_at`.

    It is not an `Exception`, so that a model that catches exceptions does not catch it.
    """


@dataclass
class Computation:
    """The computation of one gradient.

    Attributes:
        stopped: True if the computation was stopped.
        share: time until it was stopped, as a share of the usual time of a whole gradient; NaN if
            unknown.
        reached: seconds after the start at which each abort point was reached.
    """

    stopped: bool = False
    share: float = math.nan
    reached: list[float] = field(default_factory=list)


class AbortPoints:
    """The points where a model's innermost modules are entered, forward or backward.

    The hooks are on the model only during `stopping_at`, because each hook costs a call.

    Args:
        model: the model; with None nothing is stopped.
    """

    def __init__(self, model: torch.nn.Module | None) -> None:
        self._model = torch.nn.Module() if model is None else model
        modules = list(self._model.modules())
        self._leaves = [module for module in modules if not any(module.children())]
        # share of the time at each abort point in the last whole computation
        self._usual: list[float] = []

    @contextmanager
    def stopping_at(self, must_stop: Callable[[], bool]) -> Iterator[Computation]:
        """Ask `must_stop` at every abort point, and end the block there once it returns True.

        Model buffers, such as BatchNorm's averages, are then restored.

        Raises:
            Exception: any exception of `must_stop`, even if the model catches exceptions.
        """
        computation = Computation()
        raised: Exception | None = None
        before = {name: buffer.detach().clone() for name, buffer in self._model.named_buffers()}
        started = time.perf_counter()

        def look(*_: Any) -> None:
            nonlocal raised
            computation.reached.append(time.perf_counter() - started)
            try:
                if not must_stop():
                    return
            except Exception as error:
                raised = error
            raise StopComputing

        def after(_: torch.nn.Module, __: Any, output: Any) -> None:
            if isinstance(output, torch.Tensor) and output.requires_grad:
                output.register_hook(look)  # type: ignore[no-untyped-call]

        hooks = [module.register_forward_pre_hook(look) for module in self._leaves]
        hooks += [module.register_forward_hook(after) for module in self._leaves]
        try:
            yield computation
            took = time.perf_counter() - started
            self._usual = [reached / took for reached in computation.reached]
        except StopComputing:
            computation.stopped = True
            last = len(computation.reached)
            computation.share = self._usual[last - 1] if last <= len(self._usual) else math.nan
            self._restore(before)
            if raised is not None:
                raise raised from None
        finally:
            for hook in hooks:
                hook.remove()

    def _restore(self, before: Mapping[str, torch.Tensor]) -> None:
        """Put the values back into the model buffers; the model may have replaced their tensors."""
        now = dict(self._model.named_buffers())
        with torch.no_grad():
            for name, value in before.items():
                if name in now and now[name].shape == value.shape:
                    now[name].copy_(value)
                elif name in now:
                    owner, _, key = name.rpartition(".")
                    self._model.get_submodule(owner)._buffers[key] = value
