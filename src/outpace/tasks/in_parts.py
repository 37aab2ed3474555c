"""Backward passes that pass on each part of the gradient as soon as it is complete."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import torch

from outpace.blocks.gathering import Readiness

# Called with the place of a part and its gradient; the gradient belongs to the receiver.
SendPart: TypeAlias = Callable[[int, torch.Tensor], None]


class BackwardInParts:
    """Computes gradients of some parameters. Its hooks stay on the parameters.

    Args:
        slices: the parts, as slices of the vector of all parameters.
    """

    def __init__(self, parameters: Sequence[torch.Tensor], slices: Sequence[slice]) -> None:
        self._parameters = [parameter for parameter in parameters if parameter.numel()]
        layers = [parameter.numel() for parameter in self._parameters]
        self._readiness, self._parts = Readiness(layers, slices), len(slices)
        self._left: set[int] = set()
        self._send: SendPart | None = None  # None: no backward pass of this object runs
        for number, parameter in enumerate(self._parameters):
            made = partial(self._made, number)
            parameter.register_post_accumulate_grad_hook(made)  # type: ignore[no-untyped-call]

    def run(self, loss: torch.Tensor, send: SendPart) -> None:
        """Compute the gradient of a loss; call `send` once for each part, when it is complete.

        Zeros stand for the gradients of parameters that the loss does not depend on.

        Raises:
            Exception: any exception of the computation or of `send`; then parts may be missing.
        """
        self._readiness.begin()
        self._left, self._send = set(range(self._parts)), send
        try:
            torch.autograd.backward(loss, inputs=self._parameters)
            for place in sorted(self._left):
                send(place, self._part(place))
        finally:
            self._send = None
            for parameter in self._parameters:
                parameter.grad = None

    def _made(self, number: int, _: torch.Tensor) -> None:
        send = self._send
        if send is None:
            return
        for place in self._readiness.made(number):
            self._left.remove(place)
            send(place, self._part(place))

    def _part(self, place: int) -> torch.Tensor:
        return self._readiness.part(place, self._gradient)

    def _gradient(self, number: int) -> torch.Tensor:
        parameter = self._parameters[number]
        return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
