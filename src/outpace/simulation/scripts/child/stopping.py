"""Whether a step of a script was cut off, as the script sees it.

The script computes ahead of virtual time, so this is known only when the virtual time of the step
has passed. A script that asks waits until then; one that does not ask computes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from outpace.tasks.abort_points import Computation


@dataclass(slots=True)
class StepOutcome:
    """The known times of a step.

    Attributes:
        is_abortable: True if the step may be cut off.
        stopped: True if it was cut off; None: not known yet.
    """

    is_abortable: bool = False
    stopped: bool | None = None


class AwaitedComputation(Computation):
    """The computation in `outpace.abortable`, which always runs to its end.

    Args:
        find: returns whether the step was cut off; called when `stopped` is read behind the block.
    """

    def __init__(self, find: Callable[[], bool]) -> None:
        self._find, self.is_over = find, False
        super().__init__()

    @property
    def stopped(self) -> bool:
        """True if the step was cut off. False in the block, and for a step that cannot be."""
        return self.is_over and self._find()

    @stopped.setter
    def stopped(self, _: bool) -> None:
        """Do nothing: the simulation decides."""
