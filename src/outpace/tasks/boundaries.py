"""Stopping a computation at the next boundary between modules, forward or backward."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


class StopComputing(BaseException):
    """Raised at a boundary, and kept from everybody by who asked for it.

    No Exception: what a model catches by itself must not catch this.
    """


class Computation:
    """One gradient. stopped: was it? share: of a whole one's time, so far; NaN: unknown."""

    def __init__(self) -> None:
        self.stopped = False
        self.share = math.nan
        self.reached: list[float] = []  # when each boundary was, in seconds


class Boundaries:
    """Those of a model: where the innermost modules are entered and their gradients come back.

    model: None: it has no modules, nothing is stopped. Its hooks are there only while
    `stopping_at` is in force, since hooks cost a call each.
    """

    def __init__(self, model: torch.nn.Module | None) -> None:
        modules = [] if model is None else list(model.modules())
        self._leaves = [module for module in modules if not any(module.children())]
        self._buffers = [] if model is None else list(model.buffers())
        self._usual: list[float] = []  # share of the time at each boundary, the last time

    @contextmanager
    def stopping_at(self, must_stop: Callable[[], bool]) -> Iterator[Computation]:
        """Ask `must_stop` at every boundary, and end the block there once it says so.

        Buffers, such as BatchNorm's averages, are then as they were before.
        """
        computation = Computation()
        before = [buffer.detach().clone() for buffer in self._buffers]
        started = time.perf_counter()

        def look(*_: Any) -> None:
            computation.reached.append(time.perf_counter() - started)
            if must_stop():
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
            computation.share = self._share(len(computation.reached))
            with torch.no_grad():
                for buffer, value in zip(self._buffers, before, strict=True):
                    buffer.copy_(value)
        finally:
            for hook in hooks:
                hook.remove()

    def _share(self, boundary: int) -> float:
        """Of the usual time of a whole gradient, at this boundary (from 1)."""
        return self._usual[boundary - 1] if boundary <= len(self._usual) else math.nan
