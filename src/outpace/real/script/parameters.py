"""The parameters that a user's script trains without servers, and the steps that change them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import torch

from outpace.blocks.block import Pieces, Value, parts
from outpace.engine.scripts.buffers import AveragedBuffers
from outpace.engine.scripts.model import ScriptModel
from outpace.engine.scripts.trailer import Trailer
from outpace.sync.checkpoint.state import ShardState


def load_own(script: ScriptModel, state: ShardState, own: ShardState | None) -> None:
    """Load the model of a script, and the state of its own optimizer, from a checkpoint.

    Args:
        state: state of the model that all workers have.
        own: state of the worker's own model and optimizer; None: the worker has none.
    """
    has_model = own is not None and own.parameters.nbytes > 0
    script.load([own.parameters if own is not None and has_model else state.parameters])
    if own is not None:
        script.replace_state({number: dict(values) for number, values in own.optimizer.items()})


class InPlace:
    """The parameters in the model, changed in place by the script's own optimizer.

    Implements `CommonParameters` and `OwnParameters`. The model must not change while the script
    computes a gradient, so `change` then takes effect in the model later.

    Args:
        trailer: trailer of a gradient.
        buffers: buffers of the model, which a commit replaces by their mean.
        changed: called after each commit with its number of gradients.
        stepped: called after each step on the worker's own parameters.
    """

    def __init__(
        self,
        script: ScriptModel,
        trailer: Trailer,
        buffers: AveragedBuffers,
        changed: Callable[[int], None],
        stepped: Callable[[], None],
    ) -> None:
        self._script, self._trailer, self._buffers = script, trailer, buffers
        self._changed, self._stepped = changed, stepped
        self._is_in_use = False
        self._later: torch.Tensor | None = None  # change that is yet to be added to the model

    def read(self) -> Value:
        flat = self._script.flat()
        return flat if self._later is None else flat.add_(self._later)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Do not change the model in this context, in which a gradient is computed."""
        self._is_in_use = True
        yield
        self._is_in_use = False
        self._add()

    def change(self, by: torch.Tensor) -> None:
        """Add `by`, which the caller must not use again. `read` includes it at once."""
        self._later = by if self._later is None else self._later.add_(by)
        if not self._is_in_use:
            self._add()

    def _add(self) -> None:
        if self._later is not None:
            self._script.load([self.read()])
            self._later = None

    def replica(self) -> NoReturn:
        raise AssertionError("hpsgd has parameters beside the model's")

    def commit(self, gradient: Value, divisor: float, gradients: int, factor: float = 1.0) -> None:
        assert factor == 1, "hpsgd has parameters beside the model's"
        found, how, mean = self._trailer.split(gradient, ())
        self._buffers.load(mean)
        if divisor != 1:
            torch._foreach_div_(list(found), divisor)
        self._script.take_step(found, set(how.unused))
        self._changed(gradients)

    def step(self, gradient: Value, iteration: int) -> None:
        self._script.take_step(parts(gradient), set(self._script.unused))
        self._stepped()

    def replace(self, parameters: Value) -> None:
        self._script.load([parameters])


class WithBuffers:
    """A worker's own parameters, followed by its model buffers. Implements `OwnParameters`."""

    def __init__(self, own: InPlace, buffers: AveragedBuffers) -> None:
        self._own, self._buffers = own, buffers
        self.step = own.step

    def read(self) -> Value:
        flat = self._own.read()
        assert isinstance(flat, torch.Tensor)
        return Pieces([flat, self._buffers.read(flat.device)])

    def replace(self, parameters: Value) -> None:
        flat, *rest = parts(parameters)
        count = self._buffers.layout.elements
        buffers = rest[0] if rest else flat[-count:]
        self._own.replace(flat if rest else flat[:-count])
        self._buffers.load(buffers)
