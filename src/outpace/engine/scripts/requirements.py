"""What a run requires of a script, its model and its optimizer, in every runtime."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from outpace.config.experiment import Experiment
from outpace.engine.scripts.model import ScriptModel
from outpace.errors import ConfigError
from outpace.optim.torch_optimizers import KNOWN, SEVERAL_GRADIENTS, is_known, require_known
from outpace.support.user_code import brief


def require_script(path: Path) -> Path:
    """Return the path of a script. Raises ConfigError if it does not exist or is not Python."""
    if not path.is_file():
        raise ConfigError(f"there is no script {path}")
    try:
        compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except OSError as error:
        raise ConfigError(f"cannot read the script {path}: {error.strerror}") from error
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"the script {path} is not valid Python: {brief(error)}") from error
    return path


def require_followable(experiment: Experiment) -> None:
    """Raise ConfigError for settings that apply only to Outpace's own all-reduces and steps.

    This is for a script that is followed (`ssgd`): it uses its own collectives and takes its own
    steps.
    """
    strategy = experiment.peers
    assert strategy is not None
    if strategy.wire != "full":
        raise ConfigError(
            f"sync.wire={strategy.wire}: DistributedDataParallel sends the gradients as they are: "
            "leave wire out, or register torch's bf16_compress_hook in the script"
        )


def require_steps(script: ScriptModel, experiment: Experiment) -> None:
    """Raise ConfigError unless the servers (or the workers) can take the script's steps."""
    strategy = experiment.peers
    if strategy is None:
        require_known(type(script.optimizer))
        script.settings()  # raises if a setting cannot be sent
        return
    if isinstance(script.optimizer, torch.optim.LBFGS):
        raise ConfigError(SEVERAL_GRADIENTS)
    kind = type(script.optimizer)
    if strategy.uses_replica and not is_known(kind):
        raise ConfigError(
            f"sync.kind={strategy.kind} cannot train with {kind.__name__}, because "
            "each worker needs a second optimizer of that kind: use one of torch's "
            f"{', '.join(sorted(KNOWN))}, or another strategy, such as sync.kind=ssgd"
        )


def with_name(process: str, text: str) -> str:
    """Return a message about a process with its name in front, unless the text has the name."""
    number = process.removeprefix("worker-")
    is_named = re.search(rf"\b(worker.{number}|{process})\b", text) is not None
    return text if is_named else f"{process}: {text}"


def other_parameters(worker: str, layout: str, first: str) -> ConfigError:
    """Return the error for a worker whose model differs from worker 0's, by their layouts."""
    place = next((n for n, (a, b) in enumerate(zip(layout, first, strict=False)) if a != b), 0)
    part = slice(max(0, place - 60), place + 60)
    return ConfigError(
        f"{worker} trains other parameters than worker-0: ...{layout[part]!r} where worker-0 has "
        f"{first[part]!r}"
    )
