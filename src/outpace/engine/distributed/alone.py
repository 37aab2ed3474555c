"""The collectives of a group of one process: copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from outpace.engine.distributed.call import Call, Pending
from outpace.engine.distributed.where import SUPPORTED
from outpace.errors import ConfigError


class Alone:
    """Carries out collectives of this process alone. Implements `Collectives`.

    DistributedDataParallel gets such a group if the strategy exchanges the gradients.
    """

    rank = 0
    size = 1
    has_reduced = False  # True once a backward pass has all-reduced its gradients

    def begin(self, call: Call) -> Pending:
        """Copy the inputs to the outputs.

        Raises:
            ConfigError: the call needs another process.
        """
        if call.kind in ("send", "recv"):
            raise ConfigError(f"{call}: there is no other process in this group; {SUPPORTED}")
        self.has_reduced |= call.kind == "all_reduce"
        with torch.no_grad():
            for given, into in zip(call.inputs, call.outputs, strict=False):
                if given is not into:
                    into.copy_(given)
        return Done(call.outputs)

    def finish(self, buckets: Sequence[Pending]) -> None:
        """Do nothing: no collective is pending."""


class Done:
    """A collective that is over. Implements `Pending`."""

    def __init__(self, outputs: Sequence[torch.Tensor]) -> None:
        self._outputs = list(outputs)

    def wait(self) -> None:
        """Return at once."""

    def is_done(self) -> bool:
        return True

    def future(self) -> torch.futures.Future[Any]:
        found: torch.futures.Future[Any] = torch.futures.Future()
        found.set_result(self._outputs)
        return found

    def sender(self) -> int:
        return 0
