"""Computes the seconds that a run lost because of slow units.

If workers wait for each other, an iteration lasts until the last worker has arrived. If the slow
workers had been as fast as the others, it would have lasted until

    b = max_w (a_w - e_w)

with the arrival a_w of worker w and its excess e_w: the seconds that it needed longer than the
others; 0 for a worker that is not slow. The seconds that the iteration lost, max_w a_w - b, are
divided among the workers that arrived after b like the cost of a runway among the airplanes that
need it: the part up to the first of these arrivals is shared by all of these workers, the part from
there to the second arrival by the others, and so on (the Shapley value of the airport game;
Littlechild and Owen, A simple expression for the Shapley value in a special case, Management
Science 20, 1973).

For example, workers 0 and 1 arrive after 1.0 and 1.1 s, worker 2 after 1.3 s with an excess of
0.3 s, and worker 3 after 1.6 s with 0.5 s. Then b = max(1.0, 1.1, 1.0, 1.1) = 1.1 s, and 0.5 s are
lost: of the 0.2 s until 1.3 s worker 2 and 3 are charged 0.1 s each, and worker 3 the other 0.3 s.
While they arrived, worker 0 waited for 0.6 s and worker 1 for 0.5 s.

So the seconds charged in an iteration never exceed the time for which each worker that is not slow
has waited in it.

If workers do not wait for each other, a slow worker delays others only if a server holds their
pulls for it. The delay by a hold is at most the excess of the worker that ended the hold, since the
previous hold. If the run ended when all workers had done a number of iterations, it lost the time
by which its last worker was later than it would have been without its own excess and these holds.
If the run ended at a given time, it lost the mean of both over its workers, because they computed
nothing in this time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Holds(NamedTuple):
    """Pulls that servers held, in arrays of equal length.

    Args:
        held: The worker that waited.
        ended_by: The worker whose push ended the wait.
        end_s: When the wait ended, in s since the start of the run.
        seconds: Length of the wait.
    """

    held: Ints
    ended_by: Ints
    end_s: Floats
    seconds: Floats


def shared(arrivals: Floats, excess: Floats, until: Floats | None = None) -> Floats:
    """Return the seconds that each unit is charged for, shape (T, N).

    Args:
        arrivals: Times when each unit was done, in s, shape (T, N); NaN if it took no part.
        excess: Seconds that each unit needed longer than the others, shape (T, N).
        until: Time when each wait was ended before all units were done, shape (T,); None if no wait
            was.
    """
    there = ~np.isnan(arrivals)
    late = np.where(there, arrivals, -np.inf)
    usual = np.where(there, late - np.where(there, excess, 0.0), -np.inf)
    if until is not None:
        late, usual = np.minimum(late, until[:, None]), np.minimum(usual, until[:, None])
    base = usual.max(axis=1, keepdims=True, initial=-np.inf)
    slow = there & (excess > 0) & np.isfinite(base)
    heights = np.where(slow, np.maximum(late - np.where(slow, base, 0.0), 0.0), 0.0)
    order = np.argsort(heights, axis=1, kind="stable")
    ordered = np.take_along_axis(heights, order, axis=1)
    steps = np.diff(ordered, axis=1, prepend=0.0)
    sharing = np.arange(heights.shape[1], 0, -1)  # number of units that are at least as high
    found = np.empty_like(heights)
    np.put_along_axis(found, order, np.cumsum(steps / sharing, axis=1), axis=1)
    return found


def held_because_of(excess: Floats, computed: Floats, holds: Holds) -> tuple[Floats, Floats]:
    """Return the seconds that pulls were held because of slow workers.

    A hold is charged to the worker whose message ended it, at that worker's last iteration before.
    The charge is at most the excess of that worker since the previous hold of the held worker.

    Args:
        excess: Seconds that each worker needed longer than the others, shape (T, N).
        computed: Times when the gradients were computed, in s, shape (T, N).

    Returns:
        The seconds by iteration and worker that ended the hold, shape (T, N), and by held worker,
        shape (N,).
    """
    found, of_held = np.zeros_like(excess), np.zeros(excess.shape[1])
    for worker in np.unique(holds.ended_by).tolist():
        if not 0 <= worker < excess.shape[1] or not excess[:, worker].any():
            continue
        done = np.fmax.accumulate(np.nan_to_num(computed[:, worker], nan=-np.inf))
        sums = np.cumsum(excess[:, worker])
        mine = np.flatnonzero(holds.ended_by == worker)
        mine = mine[np.lexsort((holds.end_s[mine], holds.held[mine]))]
        at = np.searchsorted(done, holds.end_s[mine] + 1e-9, side="right") - 1
        so_far = np.where(at >= 0, sums[at], 0.0)
        same = np.concatenate([[False], np.diff(holds.held[mine]) == 0])
        before = np.where(same, np.concatenate([[0.0], so_far[:-1]]), 0.0)
        charged = np.minimum(holds.seconds[mine], so_far - before)
        np.add.at(found[:, worker], np.maximum(at, 0), charged)
        np.add.at(of_held, holds.held[mine], charged)
    return found, of_held


def at_the_end(ended: Floats, delayed: Floats) -> float:
    """Return the seconds by which the last worker ended a run later.

    Args:
        ended: Time when each worker was done, in s, shape (N,).
        delayed: Seconds by which each was delayed, shape (N,).
    """
    return float(ended.max() - (ended - delayed).max())
