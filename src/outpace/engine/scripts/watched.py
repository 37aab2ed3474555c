"""Watches the gradients of a script that are pushed during backward (`overlap: backward`).

A part that was sent cannot be changed any more. So this file finds, before or in the next
`optimizer.step()`, every change that a script makes to a gradient after backward: clipping,
accumulation over several backward passes, GradScaler. torch's version counter of a tensor, and the
tensor's identity, show a change. A change through `.data` or numpy does not change the version, so
the first iterations compare the values as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import torch

from outpace.engine.scripts.layout import gradient_of
from outpace.engine.scripts.model import ScriptModel
from outpace.errors import ConfigError
from outpace.support.place import HERE

_COMPARED: Final = 16  # number of iterations whose gradients are compared by value
_REMEDY: Final = "leave overlap out, or let step() get the gradient as backward leaves it"


class WatchedGradients:
    """Notes the gradients of a script when backward makes them, and checks them at its step.

    Args:
        is_paused: returns True during backward passes of this process that are not part of the
            training.
        begins: called when backward begins to make gradients, with the numbers of the parameters
            that have no gradient because they are not trained.
        made: called with the number of a parameter whose gradient backward has made.
    """

    def __init__(
        self,
        script: ScriptModel,
        is_paused: Callable[[], bool],
        begins: Callable[[Sequence[int]], None] = lambda _: None,
        made: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._script, self._is_paused = script, is_paused
        self._begins, self._made = begins, made
        self._seen: dict[int, tuple[torch.Tensor, int, torch.Tensor | None]] = {}
        # settings of the optimizer when the first part was made
        self.settings: list[dict[str, Any]] = []
        self._compared = _COMPARED
        self._error: Exception | None = None
        self._unwatched = set(range(len(script.parameters)))
        self.begin()

    def begin(self) -> None:
        """Note that the script begins an iteration."""
        self._seen.clear()
        # A parameter may be trained from now on: torch sets hooks only on trained parameters.
        for number in [n for n in self._unwatched if self._script.parameters[n].requires_grad]:
            self._unwatched.remove(number)
            parameter = self._script.parameters[number]
            take = partial(self._take, number)
            parameter.register_post_accumulate_grad_hook(take)  # type: ignore[no-untyped-call]

    def _take(self, number: int, parameter: torch.Tensor) -> None:
        """Note the gradient of a parameter that backward has just made."""
        if self._is_paused():
            return
        try:
            self._take_first(number, parameter)
        except Exception as error:  # the script may catch the error: then its step raises it
            self._error = error
            raise

    def _take_first(self, number: int, parameter: torch.Tensor) -> None:
        if number in self._seen:
            raise ConfigError(
                f"overlap: backward: the parameter {self._name(number)} got a second gradient "
                "before optimizer.step(), after the first one was pushed. Gradient accumulation, "
                "a backward pass that is repeated after an error, and a backward pass that no "
                f"step follows, need the whole gradient: {_REMEDY}"
            )
        if not self._seen:
            self.settings = self._script.settings()
            trained = [parameter.requires_grad for parameter in self._script.parameters]
            self._begins([number for number, is_trained in enumerate(trained) if not is_trained])
        gradient = parameter.grad
        assert gradient is not None
        copy = gradient_of(parameter).clone() if self._compared else None
        self._seen[number] = gradient, gradient._version, copy
        self._made(number)

    def require_between_steps(self) -> None:
        """Raise ConfigError if parts of a gradient were sent whose step is not taken yet.

        Otherwise some servers' optimizer state would be from before the step, and some from after
        it.
        """
        if self._seen:
            raise ConfigError(
                "overlap: backward: the optimizer's state cannot be saved or loaded between "
                "backward and optimizer.step(), when some servers have taken the step: do it after "
                "the step, or leave overlap out"
            )

    def check(self) -> None:
        """Check, at a step of the script, that its gradients are those that backward made.

        Raises:
            ConfigError: if the gradients differ, or the error that was raised in the backward pass.
        """
        if self._error is not None:
            raise self._error
        script = self._script
        if HERE.is_distributed:
            raise ConfigError(
                "overlap: backward is not possible in a script that calls init_process_group: "
                "DistributedDataParallel writes the gradients again after backward has made them; "
                "leave overlap out"
            )
        if getattr(script.optimizer, "found_inf", None) is not None:
            raise ConfigError(
                "overlap: backward: GradScaler divides the gradient by its scale, and decides "
                f"whether to use it, after backward: {_REMEDY}; bfloat16 needs no GradScaler"
            )
        for number, found in self._seen.items():
            self._require_unchanged(number, *found)
        if self._seen and script.settings() != self.settings:
            raise ConfigError(
                "overlap: backward: the settings of the optimizer's groups, such as lr, changed "
                "between backward and optimizer.step(): change them after the step, or leave "
                "overlap out"
            )
        if self._compared and self._seen:
            self._compared -= 1
        self._seen.clear()

    def _require_unchanged(
        self, number: int, made: torch.Tensor, version: int, copy: torch.Tensor | None
    ) -> None:
        parameter = self._script.parameters[number]
        is_same = parameter.grad is made and made._version == version
        if is_same and copy is not None:
            now = gradient_of(parameter)
            is_same = torch.allclose(now, copy, rtol=0, atol=0, equal_nan=True)
        if not is_same:
            raise ConfigError(
                f"overlap: backward: the gradient of the parameter {self._name(number)} was "
                "changed between backward and optimizer.step(), after it was pushed: clipping, "
                f"for example, needs the whole gradient: {_REMEDY}"
            )

    def _name(self, number: int) -> str:
        return self._script.names[number]
