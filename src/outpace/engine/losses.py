"""The rules of the configuration for the loss of a process, in every runtime."""

from __future__ import annotations

from typing import Final

from outpace.config.experiment import Experiment
from outpace.record.event_log import EventLog
from outpace.sync.membership.events import Rules, Start
from outpace.sync.messages import worker_name

LEAST_PEERS: Final = 2  # least number of workers in a run without servers
SET_CHECKPOINT: Final = "set checkpoint, for example checkpoint: {every_s: 30}"
_SET_CHECKPOINT: Final = f"; {SET_CHECKPOINT}, so that a run continues after such a loss"


def rules_about_losses(
    experiment: Experiment, start_s: float, *, can_start: bool = True, can_begin_again: bool = True
) -> Rules:
    """Return the rules about the losses in a run.

    Args:
        start_s: seconds in which a new process must be ready.
        can_start, can_begin_again: see `Rules`.
    """
    return Rules(
        experiment.on_worker_loss,
        experiment.on_server_loss,
        can_start=can_start,
        can_begin_again=can_begin_again,
        least=1 if experiment.peers is None else LEAST_PEERS,
        no_checkpoint=_SET_CHECKPOINT if experiment.checkpoint is None else "",
        no_start=not_restarted(experiment),
        start_s=start_s,
    )


def cost_of_a_loss(experiment: Experiment) -> str:
    """Return a line about the costs of a lost process for a script without a checkpoint.

    The line is empty for other runs.
    """
    if not experiment.has_script or experiment.checkpoint is not None:
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
    """Return the end of a line that says why a killed worker is not started again.

    It is empty if the reason is not a missing `checkpoint`: without one, a script's work is lost
    with its process.
    """
    is_saved = experiment.checkpoint is not None or not experiment.has_script
    if is_saved or experiment.is_elsewhere or experiment.on_worker_loss != "restart":
        return ""
    return f"; without checkpoint it is not started again: {SET_CHECKPOINT}"


def add_restart(events: EventLog, order: Start) -> None:
    """Add the event that another process is started for a lost worker."""
    events.add(
        "restarted",
        role=worker_name(order.worker),
        first=order.first,
        generation=order.generation,
        updates_lost=order.lost,
    )
