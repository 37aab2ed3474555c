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
    """What travels behind a gradient: is each parameter used, and, if asked for, the settings.

    Where steps are taken from the sum all must take the same one. A parameter that got no gradient
    anywhere is left alone, as the optimizer would. Where workers are not in step, neither are
    their schedules: of the learning rates, momentum and the like, all that are numbers, the mean
    over the gradients counts.
    """

    def __init__(self, script: ScriptModel, *, settings: bool) -> None:
        self._script = script
        self._parameters = len(script.parameters)
        self._places = [
            (number, key)
            for number in range(len(script.groups) if settings else 0)
            for key, value in script.optimizer.defaults.items()
            if _is_number(value)
        ]
        self.elements = self._parameters + len(self._places)

    def behind(self, gradient: Pieces) -> Pieces:
        """The gradient with its tail."""
        used = [float(p.grad is not None) for p in self._script.parameters]
        groups = self._script.optimizer.param_groups
        numbers = [float(groups[number][key]) for number, key in self._places]
        return Pieces([*gradient.parts, gradient.parts[0].new_tensor(used + numbers)])

    def cut_off(self, value: Value, gradients: int) -> tuple[torch.Tensor, StepSettings]:
        """Of the sum of so many: the gradient, and how to take a step along it."""
        flat = whole(value)
        assert isinstance(flat, torch.Tensor)
        gradient, used, numbers = torch.split(
            flat, [len(flat) - self.elements, self._parameters, len(self._places)]
        )
        unused = [number for number, count in enumerate(used.tolist()) if not count]
        settings = self._script.settings() if self._places else []
        for (group, key), total in zip(self._places, numbers.tolist(), strict=True):
            settings[group][key] = total / gradients
        return gradient, StepSettings(settings, unused)


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
        flat, how = self._tail.cut_off(gradient, gradients)
        if divisor != 1:
            flat.div_(divisor)
        parameters = self._script.parameters
        for parameter, part in zip(parameters, split_like(flat, parameters), strict=True):
            parameter.grad = part.to(parameter.device)
        for number in how.unused:
            parameters[number].grad = None
        self._script.take_step()
        self._changed(gradients)

    def step(self, gradient: Value, iteration: int) -> None:
        for parameter, part in zip(self._script.parameters, parts(gradient), strict=True):
            if parameter.grad is not None:  # as it is, or scaled
                parameter.grad = part.view(parameter.shape).to(parameter.device)
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
        flat, how = self._tail.cut_off(gradient, gradients)
        self._block.update(flat, divisor, how, 0)
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
                steps = [found[id(p)].view(p.shape).to(p.device) for p in members]
                rate = float(group["lr"]) * (1 if group["maximize"] else -1)
                torch._foreach_add_(members, steps, alpha=rate)

    def stay(self) -> None:
        self.show()
        self._stays = True

    def follow(self) -> None:
        self._stays = False


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
