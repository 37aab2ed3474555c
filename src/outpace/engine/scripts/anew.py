"""Words about scripts that begin anew when a run goes on: nothing says how far they had come."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from outpace.sync.messages import worker_name

_MOST_NAMED: Final = 8
REMEDY: Final = "no objects to keep are given to outpace.attach, and outpace.sampler is not used"


class LostSince:
    """The iterations since a checkpoint that scripts which begin anew have not done again.

    Args:
        number: of the checkpoint from which the run went on; 0: it has just begun.
        lost: iterations that an earlier session has lost since that checkpoint.
    """

    def __init__(self, number: int = 0, lost: int = 0) -> None:
        self._number, self._lost = number, lost

    def then(self, number: int, lost: int) -> int:
        """Return all that is lost since a checkpoint when all go back to it once more.

        lost: iterations since they went on the last time.
        """
        earlier = self._lost if number == self._number else 0
        self._number, self._lost = number, lost + earlier
        return self._lost


def unrepeated(anew: Collection[int], before: Mapping[int, int], now: Mapping[int, int]) -> int:
    """Return the iterations that these workers had done after a checkpoint.

    Args:
        anew: workers whose scripts begin anew.
        before: by worker, the iterations that it had completed at the checkpoint.
        now: by worker, those that it has completed.
    """
    return sum(max(0, now.get(each, 0) - before.get(each, 0)) for each in anew)


def begin_anew(workers: Collection[int], parameters: str) -> str:
    """Say that the scripts of these workers begin anew. parameters: with which ones."""
    numbers = sorted(workers)
    shown = numbers if len(numbers) <= _MOST_NAMED else numbers[:3]
    names = ", ".join(map(worker_name, shown))
    if rest := len(numbers) - len(shown):
        names += f" and {rest} more workers"
    several = len(numbers) > 1
    begin = f"scripts of {names} begin" if several else f"script of {names} begins"
    return f"the {begin} anew, with the parameters {parameters}"
