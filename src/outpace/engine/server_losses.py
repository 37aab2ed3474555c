"""Decides whether a run goes on after the loss of a server, in every runtime.

A run that lost servers begins again from its last checkpoint, with all processes started anew: the
servers are as they were at the checkpoint, so nothing is applied twice, and the workers repeat what
came after it, so nothing is missing.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from outpace.engine.worker_losses import SET_CHECKPOINT
from outpace.errors import RunError

OnServerLoss: TypeAlias = Literal["restart", "continue", "stop"]

MOST_LOSSES: Final = 5  # of servers, without a checkpoint in between
_SET_CHECKPOINT: Final = f"{SET_CHECKPOINT}, and such a run goes on from the last one"


class ServerLosses:
    """The losses of servers in one run.

    Args:
        on_loss: what the configuration says.
        can_restart: False if processes cannot be started again.
        advises_checkpoint: True if the configuration has no `checkpoint`, and could have one.
    """

    def __init__(
        self, on_loss: OnServerLoss, *, can_restart: bool, advises_checkpoint: bool
    ) -> None:
        self._restarts, self._is_elsewhere = on_loss != "stop", not can_restart
        self._advises = advises_checkpoint
        self._last, self._losses = 0, 0  # the last checkpoint, and losses since then

    def require_way_on(self, loss: RunError, last: int) -> None:
        """Count a loss; return if the run begins again from its last checkpoint.

        Args:
            last: number of the last checkpoint; 0: there is none.

        Raises:
            RunError: if there is none, if the run is to stop, or if it was lost too often since.
        """
        if last == 0:
            raise RunError(f"{loss}; {_SET_CHECKPOINT}") if self._advises else loss
        if self._is_elsewhere:
            raise RunError(
                f"{loss}; its workers were started elsewhere, so start them again with outpace "
                f"serve --resume: it continues from checkpoint {last}"
            )
        if not self._restarts:
            raise loss
        self._last, self._losses = last, 1 + (self._losses if last == self._last else 0)
        if self._losses == MOST_LOSSES:
            said = f"the {MOST_LOSSES}th loss since checkpoint {last}"
            raise RunError(f"{loss}: {said}; the run ends")
