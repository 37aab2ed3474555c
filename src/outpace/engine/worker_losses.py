"""Decides how a run without servers goes on after the loss of a worker, in every runtime."""

from __future__ import annotations

from typing import Final

from outpace.config.experiment import Experiment
from outpace.tasks import Script

SET_CHECKPOINT: Final = "set checkpoint, for example checkpoint: {every_s: 30}"


def not_restarted(experiment: Experiment) -> str:
    """Return why a killed worker is not started again, as the end of a line.

    Empty if it is not the lack of a `checkpoint`: what a script has done is lost with its process,
    and without servers so is its place among the others.
    """
    task = experiment.task
    is_saved = experiment.checkpoint is not None or not (
        isinstance(task, Script) or experiment.peers is not None
    )
    is_elsewhere = isinstance(task, Script) and task.is_elsewhere
    if is_saved or is_elsewhere or experiment.on_worker_loss != "restart":
        return ""
    return f"; without checkpoint it is not started again: {SET_CHECKPOINT}"


def comes_back_alone(experiment: Experiment) -> bool:
    """True if a lost worker comes back while the others go on, with the model of one of them.

    A script goes on with what it keeps, which is sent where there is a `checkpoint`.
    """
    strategy, task = experiment.peers, experiment.task
    assert strategy is not None
    if isinstance(task, Script) and (experiment.checkpoint is None or task.is_elsewhere):
        return False
    return strategy.can_be_joined


def begins_again(experiment: Experiment, last: int) -> bool:
    """True if all workers begin again from the last checkpoint when one of them is lost.

    last: number of that checkpoint; 0: there is none.
    """
    return experiment.on_worker_loss == "restart" and last > 0
