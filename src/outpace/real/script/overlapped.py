"""The gradient of a script whose parts are pushed while backward makes the others.

Backward calls a hook when the gradient of a parameter is complete: in the thread of the script, or
on a GPU in a thread of torch while the script waits in `backward()`. The hook pushes the parts that
are now complete. The remaining parts, such as parts of parameters that the loss does not depend on,
are pushed in `optimizer.step()`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock

import torch

from outpace.blocks.block import Block, StepSettings
from outpace.blocks.gathering import Readiness
from outpace.blocks.sums import all_finite
from outpace.engine.scripts.layout import gradient_of
from outpace.engine.scripts.watched import WatchedGradients
from outpace.real.script.trainer import ScriptTrainer
from outpace.sync.programs.context import SendPart


class OverlappedGradient:
    """Pushes the parts of a script's gradient.

    Args:
        is_paused: returns True during backward passes of this process that are not part of the
            training.
    """

    def __init__(self, trainer: ScriptTrainer, is_paused: Callable[[], bool]) -> None:
        self._trainer, self._script = trainer, trainer.script
        self.watched = WatchedGradients(self._script, is_paused, self._begins, self._made)
        self._readiness: Readiness | None = None
        self._slices: Sequence[slice] = ()
        # None: nothing is pushed before the whole gradient is complete
        self._send: SendPart | None = None
        self._left: set[int] = set()  # servers whose parts have not been pushed
        self._is_unusable = False  # a part is not finite
        self._lock = Lock()  # backward may make gradients in several threads

    def begin(self, slices: Sequence[slice], send: SendPart | None) -> None:
        """Note that the script begins an iteration, with new parameters.

        Args:
            slices: slices of the flat parameters, one for each server.
            send: pushes a part; None: nothing is pushed before the step.
        """
        if self._slices != slices:
            self._slices, self._readiness = slices, Readiness(self._script.layers, slices)
        self._send, self._left = send, set(range(len(slices)))
        self._is_unusable = False
        self.watched.begin()

    def leave(self) -> None:
        """Abstain at the servers that lack a part of a gradient, because the script leaves."""
        send, self._send = self._send, None
        self.watched.begin()
        if send is not None and 0 < len(self._left) < len(self._slices):
            for server in sorted(self._left):
                send(server, None)

    def _begins(self, absent: Sequence[int]) -> None:
        assert self._readiness is not None
        self._readiness.begin(absent)

    def _made(self, number: int) -> None:
        """Push the parts that are complete now that this parameter's gradient is complete."""
        assert self._readiness is not None
        with self._lock:
            for server in self._readiness.made(number):
                if self._send is not None and not self._is_unusable:
                    self._push(server, self._send)

    def _push(self, server: int, send: SendPart) -> None:
        part = self._part(server)
        if not all_finite(part):  # the step refuses the gradient, unless GradScaler is used
            self._is_unusable = True
            return
        assert self._readiness is not None
        within, parameters = self._readiness.tensors(server), self._script.parameters
        unused = [number for number in within if parameters[number].grad is None]
        self._trainer.step_settings = StepSettings(self.watched.settings, unused)
        self._left.remove(server)
        send(server, part)

    def _part(self, server: int) -> torch.Tensor:
        assert self._readiness is not None
        return self._readiness.part(server, self._gradient)

    def _gradient(self, number: int) -> torch.Tensor:
        gradient = gradient_of(self._script.parameters[number])
        return gradient.cpu() if self._script.device is None else gradient

    def take_gradient(self) -> Sequence[Block | None]:
        """Return the remaining parts at the step, by server; None for those already sent.

        Raises:
            ConfigError: if the gradient has changed since backward.
            DivergenceError: if a part is not finite.
        """
        self.watched.check()
        if self._send is None:
            return self._trainer.take_gradient()
        trainer, script = self._trainer, self._script
        parts = {server: self._part(server) for server in sorted(self._left)}
        if self._is_unusable or not all(map(all_finite, parts.values())):
            trainer.refuse_gradient()
        self._send = None  # the program sends the remaining parts
        trainer.look_at_first()
        trainer.step_settings = StepSettings(script.settings(), script.unused)
        return [parts.get(server) for server in range(len(self._slices))]
