"""What the loss of a worker means for a run, in every runtime."""

from __future__ import annotations

from typing import Final

from outpace.config.experiment import Experiment
from outpace.tasks import Script

LEAST_PEERS: Final = 2  # workers of a run without servers
SET_CHECKPOINT: Final = "set checkpoint, for example checkpoint: {every_s: 30}"


def cost_of_a_loss(experiment: Experiment) -> str:
    """Return what the loss of a process costs a script without a checkpoint, as a line.

    Empty for other runs.
    """
    if not isinstance(experiment.task, Script) or experiment.checkpoint is not None:
        return ""
    if experiment.peers is not None:
        what = "the loss of a worker ends the run, and all that it has done is lost"
    else:
        what = (
            "a worker that is lost does not come back, and the loss of a server ends the run: all "
            "that it has done is lost"
        )
    return f"without checkpoint {what}; {SET_CHECKPOINT}"


def not_restarted(experiment: Experiment) -> str:
    """Return why a killed worker is not started again, as the end of a line.

    Empty if it is not the lack of a `checkpoint`: what a script has done is lost with its process.
    """
    task = experiment.task
    is_saved = experiment.checkpoint is not None or not isinstance(task, Script)
    is_elsewhere = isinstance(task, Script) and task.is_elsewhere
    if is_saved or is_elsewhere or experiment.on_worker_loss != "restart":
        return ""
    return f"; without checkpoint it is not started again: {SET_CHECKPOINT}"
