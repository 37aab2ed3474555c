"""Has a script compute iterations again whose gradients are in the model already.

A process that takes another one's place begins with a state that the script had kept before, and
computes the iterations from there on again, as far as the model has them; their gradients are
dropped. Then scheduler, random numbers and place in the data are as they were, and the next batch
is the next iteration's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch._compile import _disable_dynamo
from torch.nn.modules.module import register_module_forward_pre_hook

from outpace.engine.scripts.kept import KeptState
from outpace.engine.scripts.redividing import Redivided
from outpace.errors import RunError
from outpace.real.net.checkpoint_messages import ScriptState
from outpace.record.checkpoints.tensors import from_bytes
from outpace.record.checkpoints.trees import tree_of
from outpace.support.units import Time


class Process(Protocol):
    """The process of a worker that may have taken another one's place.

    Attributes:
        kept: what its script kept, and what the coordinator says of it.
        redivided: see `Redivided`; None: as many workers as before.
    """

    worker: int
    name: str
    kept: tuple[torch.Tensor, ScriptState] | None
    redivided: Redivided | None

    @property
    def first_iteration(self) -> int | None:
        """The iteration with which it begins; None: the first one."""

    @property
    def now(self) -> Time: ...

    def not_computing(self, begun: Time, ended: Time) -> None:
        """Take a span out of the time of a gradient."""


class Repeating(ABC):
    """The state with which a worker's script goes on, and the iterations that it repeats.

    Args:
        is_paused: returns True while a forward pass of this process is not part of the training.
    """

    def __init__(self, process: Process, kept: KeptState, is_paused: Callable[[], bool]) -> None:
        self._of, self._kept, self._is_paused = process, kept, is_paused
        self._again = 0  # iterations that are computed again
        self._logs = False  # True if what the script logs in them is not known yet
        self._since: Time = 0  # they are computed
        self._repeated: torch.utils.hooks.RemovableHandle | None = None  # in the last repeated one

    @abstractmethod
    def begins(self, iteration: int) -> None:
        """The script begins an iteration, with new parameters."""

    @abstractmethod
    def end(self) -> None:
        """The script leaves the training."""

    def restore(self) -> None:
        """Put the script into the state that it had at a checkpoint, if it goes on from one.

        Raises:
            ConfigError: if it keeps other objects now.
            RunError: if the state cannot be read.
        """
        found, self._of.kept = self._of.kept, None
        if found is None:
            return
        data, message = found
        try:
            tree = tree_of(from_bytes(data))
        except OSError as error:
            raise RunError(f"{self._of.name}: what its script kept: {error}") from error
        others = self._of.redivided
        self._kept.restore(tree if others is None else others.of(self._of.worker, tree))
        if (iteration := tree.get("iteration")) is not None:
            self._again, self._since = max(0, message.done - iteration), self._of.now
            self._logs = message.logs

    def repeat(self) -> bool:
        """Take the end of an iteration that is computed again; else False."""
        if not self._again:
            self._end_repeating()
            return False
        process, since = self._of, self._since
        self._since = process.now
        process.not_computing(since, self._since)
        self._again -= 1
        if not self._again:
            assert process.first_iteration is not None
            self.begins(process.first_iteration)
            # What the script does after its step, such as to log its loss, is of that iteration.
            self._repeated = register_module_forward_pre_hook(self._next_forward)
        return True

    @property
    def repeats_left(self) -> int:
        """The number of iterations that the script computes again, from the present one on."""
        return self._again

    @property
    def is_repeating(self) -> bool:
        """True while the script repeats iterations whose gradients are in the model already.

        The last of them ends with the next forward pass, or the next step.
        """
        return self._again > 0 or self._repeated is not None

    @property
    def repeated_to_log(self) -> int | None:
        """The iteration that is repeated now, if what the script logs in it is to be logged."""
        first = self._of.first_iteration
        if not self._logs or first is None:
            return None
        return first - max(1, self._again)

    @_disable_dynamo
    def _next_forward(self, *_: Any) -> None:
        if torch.is_grad_enabled() and not self._is_paused():
            self._end_repeating()

    def _end_repeating(self) -> None:
        if self._repeated is not None:
            self._repeated.remove()
            self._repeated = None
