"""Decides what follows the loss of a process, in every runtime. Without IO.

There are two recoveries. A worker of a run with servers is replaced alone, or the others go on
without it (`sync.membership`). After every other loss all processes begin again from the last
checkpoint: servers and models are as they were then, so nothing is applied twice, and the workers
repeat what came after it, so nothing is missing. Before the training all begin as they did.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal, TypeAlias

from outpace.config.experiment import Experiment
from outpace.errors import RunError
from outpace.support.words import plural

Follows: TypeAlias = Literal["alone", "all", "anew", "end"]

LEAST_PEERS: Final = 2  # workers of a run without servers
MOST_LOSSES: Final = 5  # after which all begin again, without a checkpoint in between
SET_CHECKPOINT: Final = "set checkpoint, for example checkpoint: {every_s: 30}"
_SET_CHECKPOINT: Final = f"{SET_CHECKPOINT}, and such a run goes on from the last one"


def follows(
    experiment: Experiment,
    *,
    is_server: bool,
    has_begun: bool = True,
    has_exited: bool = False,
    can_restart: bool = True,
) -> Follows:
    """Return what follows the loss of a process.

    Args:
        has_begun: the training has begun.
        has_exited: the process was not killed. One that ends itself would do so again.
        can_restart: all processes can be started again.

    Returns:
        alone: what `sync.membership` decides, and if that cannot be, the end of the run. all: all
        begin again from the last checkpoint. anew: all begin as they did. end: the run ends.
    """
    on_loss = experiment.on_server_loss if is_server else experiment.on_worker_loss
    if not has_begun and can_restart and not has_exited and on_loss != "stop":
        return "anew"
    if is_server:
        return "all"  # or the run ends: see `GroupLosses`
    if on_loss == "stop":
        return "end"
    if experiment.peers is None:
        return "alone"
    return "end" if has_exited and on_loss == "restart" else "all"


def numbers_left(
    present: Experiment, loss: RunError, workers: int, servers: int
) -> tuple[int, int]:
    """Return how many workers and servers begin again.

    Args:
        workers, servers: numbers of those that are gone. With `continue` they do not begin again.

    Raises:
        RunError: if too few are left.
    """
    left_workers, left_servers = present.workers, present.servers
    if present.on_worker_loss == "continue":
        left_workers -= workers
    if present.on_server_loss == "continue":
        left_servers -= servers
    least = 1 if present.peers is None else LEAST_PEERS
    if left_workers < least or left_servers < 1:
        needed = plural(least, "worker") if left_workers < least else "1 server"
        raise RunError(f"{loss}; the run needs at least {needed}")
    return left_workers, left_servers


def left_after(present: Experiment, loss: RunError, workers: int, servers: int) -> Experiment:
    """Return the experiment with which all begin again. Arguments and errors: `numbers_left`."""
    left_workers, left_servers = numbers_left(present, loss, workers, servers)
    return replace(present, workers=left_workers, servers=left_servers)


class GroupLosses:
    """The losses in one run after which all processes begin again.

    can_restart: False if processes cannot be started again.
    """

    def __init__(self, experiment: Experiment, *, can_restart: bool) -> None:
        self._experiment, self._can_restart = experiment, can_restart
        self._last, self._losses = 0, 0  # the last checkpoint, and losses since then

    def require_way_on(self, loss: RunError, last: int) -> None:
        """Count a loss; return if the run begins again from its last checkpoint.

        Args:
            last: number of the last checkpoint; 0: there is none.

        Raises:
            RunError: if there is none, if the run is to stop, or if it was lost too often since.
        """
        if last == 0:
            advises = self._experiment.checkpoint is None
            raise RunError(f"{loss}; {_SET_CHECKPOINT}") if advises else loss
        if not self._can_restart:
            raise RunError(
                f"{loss}; its workers were started elsewhere, so start them again with outpace "
                f"serve --resume: it continues from checkpoint {last}"
            )
        if self._experiment.on_server_loss == "stop":
            raise loss
        self._last, self._losses = last, 1 + (self._losses if last == self._last else 0)
        if self._losses == MOST_LOSSES:
            said = f"the {MOST_LOSSES}th loss since checkpoint {last}"
            raise RunError(f"{loss}: {said}; the run ends")


def cost_of_a_loss(experiment: Experiment) -> str:
    """Return what the loss of a process costs a script without a checkpoint, as a line.

    Empty for other runs.
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
    """Return why a killed worker is not started again, as the end of a line.

    Empty if it is not the lack of a `checkpoint`: what a script has done is lost with its process.
    """
    is_saved = experiment.checkpoint is not None or not experiment.has_script
    if is_saved or experiment.is_elsewhere or experiment.on_worker_loss != "restart":
        return ""
    return f"; without checkpoint it is not started again: {SET_CHECKPOINT}"
