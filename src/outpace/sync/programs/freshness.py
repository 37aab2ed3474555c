"""When a worker should begin a computation again: how much fresher its parameters would be.

A worker that begins again after a window of d seconds has the gradients that other workers have
pushed in the window: they are gained. Its own push comes d seconds later, so other workers that
pull in these d seconds lack it: they are lost. Both are counted in gradients of one worker that
another one has, or lacks.

The gain is read off the last epoch: the pushes of others within d after a worker began. The loss
is expected to be d times the steps that the other workers begin per second. Over all steps of an
epoch,

    net(d) = pairs of a step and a push of another worker at most d after its begin
             - d * sum over these steps of the steps per second that the other workers begin

Between two pushes the gain stays the same and the loss grows, so only the distances from a begin
to a push can be the best d. Windows above a share of the mean step are not considered: `net` says
nothing about the gradients that a worker does not compute while it repeats a step, and near the
end of a step a restart costs nearly a whole one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from outpace.support.units import Time, seconds

_MOST: Final = 0.5  # of the mean time of a step: the longest window

Events: TypeAlias = Sequence[tuple[int, Time]]  # worker, time


class Window(NamedTuple):
    """A step is begun again if, `time_s` after its begin, enough gradients have been pushed.

    Enough: `rate` times the number of workers, and at least one.
    """

    time_s: float
    rate: float

    def is_enough(self, pushes: int, workers: int) -> bool:
        """True if a worker should begin again after so many pushes of others."""
        # A rate such as 0.07 times 100 workers is 7, not a little more.
        return pushes >= max(1.0, self.rate * workers - 1e-9)


@dataclass(frozen=True, slots=True)
class Speculation:
    """How a scheduler decides which steps are begun again.

    Attributes:
        fixed: the window of all steps; None: it is chosen anew after each epoch.
        epoch_pushes: pushes per worker in an epoch.
    """

    fixed: Window | None
    epoch_pushes: int


class Epoch:
    """The steps and pushes since the window was chosen last."""

    def __init__(self, pushes_per_worker: int, now: Time) -> None:
        self._pushes_per_worker = pushes_per_worker
        self._since = now
        self._begins: list[tuple[int, Time]] = []
        self._pushes: list[tuple[int, Time]] = []  # with a gradient
        self._count = 0  # of all pushes

    def began(self, worker: int, now: Time) -> None:
        self._begins.append((worker, now))

    def pushed(self, worker: int, now: Time, *, gradient: bool = True) -> None:
        self._count += 1
        if gradient:
            self._pushes.append((worker, now))

    def is_over(self, workers: int) -> bool:
        """True if there are as many pushes as an epoch of so many workers has."""
        return self._count >= self._pushes_per_worker * workers

    def window(self, workers: int, now: Time) -> Window | None:
        """Return the best window for the next epoch; None: no step should be begun again."""
        return best_window(self._begins, self._pushes, workers, self._since, now)


def best_window(
    begins: Events, pushes: Events, workers: int, since: Time, until: Time
) -> Window | None:
    """Return the window with the highest net gain; None if none has a gain above 0.

    Args:
        begins: the steps of all workers, in the order in which they began.
        pushes: the gradients of all workers, in the order in which they were pushed.
        workers: number of workers in the run.
        since, until: of the epoch (ns).
    """
    length = until - since
    if not begins or not pushes or length <= 0:
        return None
    longest = int(_MOST * length * workers / len(pushes))
    who, when = _columns(begins)
    pushers, pushed = _columns(pushes)
    seen = when + longest <= until  # of the others, the end of the window is not known yet
    first = np.searchsorted(pushed, when, side="right")
    behind = np.searchsorted(pushed, when + longest, side="right")
    distances = []
    for step in np.flatnonzero(seen):
        within = slice(first[step], behind[step])
        others = pushers[within] != who[step]
        distances.append(pushed[within][others] - when[step])
    gained = np.sort(np.concatenate(distances)) if distances else np.array([], np.int64)
    if not len(gained):
        return None
    counts = np.bincount(who, minlength=int(who.max()) + 1)
    # Steps per ns that the workers other than that of each step begin.
    others_per_ns = (len(who) - counts[who[seen]]) / length
    last = np.append(gained[1:] != gained[:-1], True)  # of equal distances, all count
    distance, pairs = gained[last], np.flatnonzero(last) + 1
    net = pairs - distance * others_per_ns.sum()
    best = int(net.argmax())
    if net[best] <= 0:
        return None
    lost = float(distance[best] * others_per_ns.mean())
    return Window(seconds(int(distance[best])), lost / workers)


def _columns(events: Events) -> tuple[np.ndarray, np.ndarray]:
    table = np.array(events, dtype=np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]
