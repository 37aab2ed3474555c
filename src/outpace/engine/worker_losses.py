"""Decides how a run without servers goes on after the loss of a worker, in every runtime."""

from __future__ import annotations

from outpace.config.experiment import Experiment
from outpace.tasks import Script


def comes_back_alone(experiment: Experiment) -> bool:
    """True if a lost worker comes back while the others go on, with the model of one of them.

    What a script keeps is lost with its process, so all scripts begin again together.
    """
    strategy = experiment.peers
    assert strategy is not None
    return strategy.can_be_joined and not isinstance(experiment.task, Script)


def begins_again(experiment: Experiment, last: int) -> bool:
    """True if all workers begin again from the last checkpoint when one of them is lost.

    last: number of that checkpoint; 0: there is none.
    """
    return experiment.on_worker_loss == "restart" and last > 0
