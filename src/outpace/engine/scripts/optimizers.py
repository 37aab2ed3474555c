"""Requirements on a script's optimizer in a run without servers, in every runtime."""

from __future__ import annotations

import torch

from outpace.engine.scripts.model import ScriptModel
from outpace.errors import ConfigError
from outpace.optim import UpdaterKind
from outpace.optim.python import PythonOptimizer
from outpace.optim.torch_optimizers import KNOWN, SEVERAL_GRADIENTS, is_known
from outpace.sync import PeerStrategy


def require_own_optimizer(optimizer: UpdaterKind | PythonOptimizer) -> None:
    """Raise ConfigError if the configuration names a function that makes another optimizer."""
    if isinstance(optimizer, PythonOptimizer):
        raise ConfigError(
            "optimizer: without servers the script's own optimizer takes the steps: remove this key"
        )


def require_workers_can_step(
    script: ScriptModel, optimizer: UpdaterKind | PythonOptimizer, strategy: PeerStrategy
) -> None:
    """Raise ConfigError unless the script's optimizer can take a worker's steps.

    Args:
        optimizer: of the configuration.
    """
    require_own_optimizer(optimizer)
    if isinstance(script.optimizer, torch.optim.LBFGS):
        raise ConfigError(SEVERAL_GRADIENTS)
    kind = type(script.optimizer)
    if strategy.uses_replica and not is_known(kind):
        raise ConfigError(
            f"sync.kind={strategy.kind} cannot train with {kind.__name__}, because "
            "each worker needs a second optimizer of that kind: use one of torch's "
            f"{', '.join(sorted(KNOWN))}, or another strategy, such as sync.kind=ssgd"
        )
