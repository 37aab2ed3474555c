"""The parameters of a user's script without servers: where they are, and who changes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from outpace.messages import StepSettings, Value, parts, whole
from outpace.pieces import Pieces
from outpace.real.reductions import split_like
from outpace.real.scripted import ScriptModel
from outpace.torch_optimizers import TorchOptimizer


class Tail:
    """What travels behind a gradient: is each parameter used, the learning rates, and buffers.

    Where steps are taken from the sum all must take the same one. A parameter that got no gradient
    anywhere is left alone, as the optimizer would; rates, which may change from step to step, are
    averaged over the gradients, and so are the model's buffers, if they are to be.
    """

    def __init__(self, script: ScriptModel, buffers: Buffers) -> None:
        self._script, self._buffers = script, buffers
        self._parameters = len(script.parameters)
        self.elements = self._parameters + len(script.groups) + buffers.elements

    def behind(self, gradient: Pieces) -> Pieces:
        """The gradient with its tail."""
        used = [float(p.grad is not None) for p in self._script.parameters]
        rates = [float(group["lr"]) for group in self._script.optimizer.param_groups]
        numbers = gradient.parts[0].new_tensor(used + rates)
        return Pieces([*gradient.parts, torch.cat([numbers, self._buffers.read(numbers)])])

    def cut_off(
        self, value: Value, divisor: float
    ) -> tuple[Sequence[torch.Tensor], list[int], list[float]]:
        """Of a sum of so many: the gradient, who was used by nobody, the mean rates.

        The mean buffers go into the model.
        """
        *gradient, last = parts(value)
        if not gradient:
            gradient = [last[: -self.elements]]
            last = last[-self.elements :]
        count = self._parameters + len(self._script.groups)
        self._buffers.load(last[count:] / divisor)
        used, rates = last[: self._parameters].tolist(), last[self._parameters : count].tolist()
        return (
            gradient,
            [n for n, sum_ in enumerate(used) if not sum_],
            [r / divisor for r in rates],
        )


class Buffers:
    """The floating-point buffers of a model, such as BatchNorm's averages."""

    def __init__(self, script: ScriptModel, averaged: bool) -> None:
        found = [b for b in script.model.buffers() if b.is_floating_point()] if averaged else []
        self._buffers = found
        self.elements = sum(buffer.numel() for buffer in found)

    def read(self, like: torch.Tensor) -> torch.Tensor:
        """All of them; shape (elements,)."""
        return torch.cat(
            [like.new_empty(0), *(b.detach().reshape(-1).to(like) for b in self._buffers)]
        )

    def load(self, values: torch.Tensor) -> None:
        """Have these instead."""
        if self._buffers:
            with torch.no_grad():
                torch._foreach_copy_(self._buffers, split_like(values, self._buffers))


class InPlace:
    """Those in the model, changed there by the script's own optimizer.

    Implements `CommonParameters` and `OwnParameters`. changed: told how many gradients a commit
    has. stepped: told of a step of one's own.
    """

    def __init__(
        self, script: ScriptModel, tail: Tail, changed: Callable[[int], None],
        stepped: Callable[[], None],
    ) -> None:  # fmt: skip
        self._script, self._tail = script, tail
        self._changed, self._stepped = changed, stepped

    def read(self) -> Value:
        return self._script.flat()

    def replica(self) -> ScriptReplica:
        raise AssertionError("hpsgd has parameters beside the model's")

    def commit(self, gradient: Value, divisor: float, gradients: int) -> None:
        found, unused, _ = self._tail.cut_off(gradient, 1)
        if divisor != 1:
            torch._foreach_div_(list(found), divisor)
        parameters = self._script.parameters
        tensors = split_like(found[0], parameters) if len(found) == 1 else found
        for parameter, part in zip(parameters, tensors, strict=True):
            parameter.grad = part.view(parameter.shape)
        for number in unused:
            parameters[number].grad = None
        self._script.take_step()
        self._changed(gradients)

    def step(self, gradient: Value, iteration: int) -> None:
        for parameter, part in zip(self._script.parameters, parts(gradient), strict=True):
            if parameter.grad is not None:
                parameter.grad = part.view(parameter.shape)  # as it is, or scaled
        self._script.take_step()
        self._stepped()

    def replace(self, parameters: Value) -> None:
        self._script.load([parameters])


class WithBuffers:
    """A worker's own, of which the model's buffers are averaged as well.

    Implements `OwnParameters`.
    """

    def __init__(self, own: InPlace, buffers: Buffers) -> None:
        self._own, self._buffers = own, buffers
        self.step = own.step

    def read(self) -> Value:
        flat = self._own.read()
        assert isinstance(flat, torch.Tensor)
        return torch.cat([flat, self._buffers.read(flat)])

    def replace(self, parameters: Value) -> None:
        flat = whole(parameters)
        assert isinstance(flat, torch.Tensor)
        count = len(flat) - self._buffers.elements
        self._own.replace(flat[:count])
        self._buffers.load(flat[count:])


class Beside:
    """Those that all have in common, beside the model; changed by an optimizer like the script's.

    Implements `CommonParameters`. changed: as in `InPlace`.
    """

    def __init__(
        self, script: ScriptModel, tail: Tail, initial: torch.Tensor,
        changed: Callable[[int], None],
    ) -> None:  # fmt: skip
        self._script, self._tail, self._changed = script, tail, changed
        self.version = 0  # commits
        self._flat = initial
        groups = script.places(slice(0, len(initial)))
        kind = type(script.optimizer).__name__
        self._step = TorchOptimizer(kind, groups, script.settings()).on(initial)

    def read(self) -> torch.Tensor:
        """They change with the next commit."""
        return self._flat

    def commit(self, gradient: Value, divisor: float, gradients: int) -> None:
        (flat,), unused, rates = self._tail.cut_off(gradient, gradients)
        settings = self._script.settings()
        for group, rate in zip(settings, rates, strict=True):
            group["lr"] = rate
        self._step(flat, divisor, StepSettings(settings, unused), 0)
        self.version += 1
        self._changed(gradients)

    def replica(self) -> ScriptReplica:
        return ScriptReplica(self, self._script)


class ScriptReplica:
    """The parameters in the model. Implements `ReplicaParameters`."""

    def __init__(self, common: Beside, script: ScriptModel) -> None:
        self._common, self._script = common, script
        self._follows, self._stepped = True, False
        self.version = -1  # what is in the model was common then, apart from own steps

    def read(self) -> Value:
        return self._script.flat()

    def show(self) -> None:
        """See that they are in the model."""
        if self._follows and self.version != self._common.version:
            self._script.load([self._common.read()])
            self.version = self._common.version

    def step(self, gradient: Value, iteration: int) -> None:
        self.show()
        self._follows, self._stepped = False, True
        found = dict(zip(map(id, self._script.parameters), parts(gradient), strict=False))
        for group in self._script.optimizer.param_groups:
            members = [p for p in group["params"] if id(p) in found]
            with torch.no_grad():
                steps = [found[id(p)].view(p.shape) for p in members]
                torch._foreach_add_(members, steps, alpha=-float(group["lr"]))

    def stay(self) -> None:
        self.show()
        self._follows = False

    def follow(self) -> None:
        if self._stepped:
            self.version = -1
        self._follows, self._stepped = True, False
