"""Check configuration and script of a run whose script uses its own collectives (`ssgd`)."""

from __future__ import annotations

import os

from outpace.config.experiment import Experiment
from outpace.engine.scripts.optimizers import require_own_optimizer
from outpace.errors import ConfigError
from outpace.support.place import HERE


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
        "one of them. With init_process_group and DistributedDataParallel nothing else is needed "
        "(for checkpoints give outpace.attach the model in DistributedDataParallel); with "
        "outpace.attach leave both out"
    )


def require_own_place(line: str, name: str, given: int | None, here: int) -> None:
    """Raise ConfigError for a rank or a number of processes that is not this process's.

    Args:
        line: of `init_process_group`.
        name: rank or world_size. given: as an argument, -1 or None for none; then torch takes the
            variable, which the script may have set.
        here: as this process has been started.
    """
    how, variable = f"{name}={given}", os.environ.get(name.upper(), "")
    if given in (-1, None):
        if not variable.isdecimal():
            return
        how, given = f"{name.upper()}={variable} in its environment", int(variable)
    if given != here:
        raise ConfigError(
            f"init_process_group at {line} has {how}, but this is process {HERE.number} of the "
            f"{HERE.workers} workers of this run: take rank and world size from the variables RANK "
            "and WORLD_SIZE, as under torchrun, or run with another --workers"
        )
