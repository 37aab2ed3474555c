"""`outpace.load_checkpoint`: the parameters in a checkpoint under the model's own names."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch

from outpace.blocks.block import Block
from outpace.blocks.naming import state_dict_of
from outpace.config.reading import experiment_from
from outpace.errors import ConfigError
from outpace.experiment.sources import path_of
from outpace.record.checkpoints import Checkpoint, Checkpoints
from outpace.record.checkpoints.committed import INDEX, Damaged
from outpace.record.folder import CHECKPOINTS, CONFIG, read_config


def load_checkpoint(path: str | Path) -> dict[str, torch.Tensor]:
    """Return the parameters in a checkpoint as a plain `state_dict`.

    The names, shapes and dtypes are those of the model. If the model of a task keeps more than
    trained parameters, such as BatchNorm's averages, the task is made from the run's configuration
    and computes them, as at the end of a run. For a script, the dictionary has the trained
    parameters alone. It is empty for the task `timing`.

    Args:
        path: the folder of a checkpoint, or the folder of a run, of which the newest checkpoint
            that is not damaged is taken.

    Raises:
        ConfigError: if there is no such checkpoint, or the task cannot be made.
    """
    try:
        checkpoint = _found(path_of(path, "path"))
        blocks: Sequence[Block] = checkpoint.blocks()
    except (OSError, Damaged) as error:
        raise ConfigError(str(error)) from error
    layout = checkpoint.index.layout
    if layout and json.loads(layout)["buffers"]:
        run = checkpoint.path.resolve().parent.parent
        experiment = experiment_from(read_config(run), str(run / CONFIG), run)
        if not experiment.has_script:
            workload = experiment.task.workload(
                experiment.workers, experiment.batch_size, experiment.seed
            )
            workload.cut(checkpoint.index.slices)
            return workload.state_dict(blocks)
    return state_dict_of(layout, blocks)


def _found(folder: Path) -> Checkpoint:
    """Return the checkpoint in this folder, or the newest one of this run, after a check."""
    if (folder / INDEX).exists():
        checkpoint = Checkpoint(folder)
        checkpoint.check()
        return checkpoint
    newest = Checkpoints(folder).newest()
    if newest is None:
        raise ConfigError(
            f"{folder} is no checkpoint, and has no checkpoint in a folder {CHECKPOINTS}: name the "
            "folder of a run with checkpoint: in its configuration, or one of its checkpoints"
        )
    return newest
