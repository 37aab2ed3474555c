"""The parameters of a user's script without servers: where they are, and who changes them."""

from __future__ import annotations

from collections.abc import Callable

import torch

from outpace.blocks import parameter_block
from outpace.errors import DivergenceError
from outpace.messages import StepSettings, Value, parts, whole
from outpace.pieces import Pieces
from outpace.real.reductions import split_like
from outpace.real.scripted import ScriptModel
from outpace.torch_optimizers import TorchOptimizer


class Tail:
    """What travels behind a gradient: is each parameter used, and the learning rates.

    Where steps are taken from the sum all must take the same one. A parameter that got no gradient
    anywhere is left alone, as the optimizer would; rates, which may change from step to step, are
    averaged over the gradients.
    """

    def __init__(self, script: ScriptModel) -> None:
        self._script = script
        self._parameters = len(script.parameters)
        self.elements = self._parameters + len(script.groups)

    def behind(self, gradient: Pieces) -> Pieces:
        """The gradient with its tail."""
        used = [float(p.grad is not None) for p in self._script.parameters]
        rates = [float(group["lr"]) for group in self._script.optimizer.param_groups]
        return Pieces([*gradient.parts, gradient.parts[0].new_tensor(used + rates)])

    def cut_off(self, value: Value) -> tuple[torch.Tensor, list[int], torch.Tensor]:
        """Of a sum: the gradient, who was used by nobody, the sum of the rates."""
        flat = whole(value)
        assert isinstance(flat, torch.Tensor)
        gradient, used, rates = torch.split(
            flat, [len(flat) - self.elements, self._parameters, self.elements - self._parameters]
        )
        return gradient, [n for n, count in enumerate(used.tolist()) if not count], rates


class InPlace:
    """Those in the model, changed there by the script's own optimizer.

    Implements `CommonParameters` and `OwnParameters`. changed: told how many gradients a commit
    has. stepped: told of a step of one's own.

    While the script computes a gradient the model must stay as it is: what is to be added to it
    meanwhile is added when that is over.
    """

    def __init__(
        self, script: ScriptModel, tail: Tail, changed: Callable[[int], None],
        stepped: Callable[[], None],
    ) -> None:  # fmt: skip
        self._script, self._tail = script, tail
        self._changed, self._stepped = changed, stepped
        self._is_in_use = False
        self._later: torch.Tensor | None = None  # to be added

    def read(self) -> Value:
        flat = self._script.flat()
        return flat if self._later is None else flat.add_(self._later)

    def begin_gradient(self) -> None:
        """The script computes one from now on."""
        self._is_in_use = True

    def end_gradient(self) -> None:
        self._is_in_use = False
        self._add()

    def change(self, by: torch.Tensor) -> None:
        """Add this, which is given away, at once or later; to who reads it is there at once."""
        self._later = by if self._later is None else self._later.add_(by)
        if not self._is_in_use:
            self._add()

    def _add(self) -> None:
        if self._later is not None:
            self._script.load([self.read()])
            self._later = None

    def replica(self) -> ScriptReplica:
        raise AssertionError("hpsgd has parameters beside the model's")

    def commit(self, gradient: Value, divisor: float, gradients: int) -> None:
        flat, unused, _ = self._tail.cut_off(gradient)
        if divisor != 1:
            flat.div_(divisor)
        parameters = self._script.parameters
        for parameter, part in zip(parameters, split_like(flat, parameters), strict=True):
            parameter.grad = part
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
        groups = script.places(slice(0, len(initial)))
        kind = type(script.optimizer).__name__
        self._block = parameter_block(initial, TorchOptimizer(kind, groups, script.settings()))
        self.read = self._block.read

    def commit(self, gradient: Value, divisor: float, gradients: int) -> None:
        flat, unused, rates = self._tail.cut_off(gradient)
        settings = self._script.settings()
        for group, rate in zip(settings, rates.tolist(), strict=True):
            group["lr"] = rate / gradients
        self._block.update(flat, divisor, StepSettings(settings, unused), 0)
        if not self._block.is_finite():
            raise DivergenceError(
                "the parameters stopped being finite; try a smaller learning rate"
            )
        self.version += 1
        self._changed(gradients)

    def replica(self) -> ScriptReplica:
        return ScriptReplica(self, self._script)


class ScriptReplica:
    """The parameters in the model. Implements `ReplicaParameters`."""

    def __init__(self, common: Beside, script: ScriptModel) -> None:
        self._common, self._script = common, script
        self._shown: Value | None = None  # what is in the model, if it was common
        self._stays = False
        self.version = 0  # of which it is a copy

    def read(self) -> Value:
        return self._script.flat()

    def show(self) -> None:
        """See that they are in the model."""
        common = self._common.read()
        if not self._stays and self._shown is not common:
            self._script.load([common])
            self._shown, self.version = common, self._common.version

    def step(self, gradient: Value, iteration: int) -> None:
        self.show()
        self._stays, self._shown = True, None
        found = dict(zip(map(id, self._script.parameters), parts(gradient), strict=False))
        for group in self._script.optimizer.param_groups:
            members = [p for p in group["params"] if id(p) in found]
            with torch.no_grad():
                steps = [found[id(p)].view(p.shape) for p in members]
                torch._foreach_add_(members, steps, alpha=-float(group["lr"]))

    def stay(self) -> None:
        self.show()
        self._stays = True

    def follow(self) -> None:
        self._stays = False
