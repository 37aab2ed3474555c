"""What configuration and script may say where a script's own collectives and optimizer train."""

from __future__ import annotations

from outpace.config.experiment import Experiment
from outpace.engine.scripts.optimizers import require_own_optimizer
from outpace.errors import ConfigError


def require_followable(experiment: Experiment) -> None:
    """Raise ConfigError for settings that apply to the all-reduces and steps of Outpace only."""
    strategy = experiment.peers
    assert strategy is not None
    if strategy.wire != "full":
        raise ConfigError(
            f"sync.wire={strategy.wire}: DistributedDataParallel sends the gradients as they are: "
            "leave wire out, or register torch's bf16_compress_hook in the script"
        )
    require_own_optimizer(experiment.optimizer)


def both(line: str) -> str:
    """Return the message about a script that uses both `attach` and a process group."""
    return (
        f"{line}: this script calls outpace.attach and torch.distributed.init_process_group: use "
        "one of them. With init_process_group and DistributedDataParallel nothing else is needed; "
        "with outpace.attach leave both out"
    )
