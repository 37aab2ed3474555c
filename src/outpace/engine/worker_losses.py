"""Decides how a run without servers goes on after the loss of a worker, in every runtime."""

from __future__ import annotations

from outpace.config.experiment import Experiment
from outpace.tasks import Script


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
