"""The collectives of a group of one process: copies."""

from __future__ import annotations

import torch

from outpace.engine.distributed.call import Call, Collectives, CollectiveWork
from outpace.engine.distributed.where import SUPPORTED
from outpace.errors import ConfigError


class Alone(Collectives):
    """Carries out collectives of this process alone.

    DistributedDataParallel gets such a group if the strategy exchanges the gradients.
    """

    rank = 0
    size = 1
    has_reduced = False  # True once a backward pass has all-reduced its gradients

    def begin(self, call: Call) -> CollectiveWork:
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
        return CollectiveWork(call.outputs)
