"""What the scripts of workers without servers have kept lately.

A process that takes a lost worker's place goes on after the last iteration of it that is in the
model of the others. That may be before the newest state of its script, so some older ones are kept,
the fewer the older they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import torch

from outpace.real.net.checkpoint_messages import MOST_REPORTED

_MOST: Final = 16
_MOST_BYTES: Final = 2 * MOST_REPORTED
_LEAST: Final = 4  # however large they are


class _State(NamedTuple):
    iteration: int  # that it belongs to the beginning of
    data: torch.Tensor


class NewestStates:
    """By worker, the states that its script has sent, ascending by iteration."""

    def __init__(self, workers: int) -> None:
        self._of: list[list[_State]] = [[] for _ in range(workers)]
        self._saved = [0] * workers  # iterations at the last checkpoint

    def has(self, worker: int) -> bool:
        """True if the script of this worker has sent what it keeps."""
        return bool(self._of[worker])

    def add(self, worker: int, data: torch.Tensor, iteration: int) -> None:
        """Take what the script of a worker keeps at the beginning of an iteration."""
        known = self._of[worker]
        known.append(_State(iteration, data))
        while len(known) > _MOST or (
            len(known) > _LEAST and sum(each.data.nbytes for each in known) > _MOST_BYTES
        ):
            del known[_superfluous(known)]

    def saved(self, worker: int, iteration: int) -> None:
        """A checkpoint has what the script kept at this iteration.

        The model of the others had all that was before the last checkpoint, so nothing older is
        needed.
        """
        known, before = self._of[worker], self._saved[worker]
        self._saved[worker] = iteration
        place = max((n for n, each in enumerate(known) if each.iteration <= before), default=0)
        del known[:place]

    def of(self, worker: int, first: int) -> torch.Tensor | None:
        """Return the newest state that is not past an iteration, and forget those after it.

        first: with which a new process goes on. None: there is no such state.
        """
        known = self._of[worker]
        known[:] = [each for each in known if each.iteration <= first]
        return known[-1].data if known else None


def _superfluous(known: Sequence[_State]) -> int:
    """Return the place of the state that is missed least: the gap is small for its age."""
    newest = known[-1].iteration + 1

    def gap(place: int) -> float:
        width = known[place + 1].iteration - known[place - 1].iteration
        return width / (newest - known[place].iteration)

    return min(range(1, len(known) - 1), key=gap)
