"""How much progress a setting of the rule `progress` is predicted to make in a second.

Run times. Each worker has its last run times, one in each row: from the start of an iteration to
its answers, without the time that servers held the pull. So they say what an iteration takes
without waiting, whatever the setting was. A worker that stopped computing tells what the whole
computation would have taken. The rows are played twice under each setting, and the second time
counts. With a quorum k an iteration ends when k gradients have arrived; this is K-sync SGD (Dutta,
Joshi, Ghosh, Dube and Nagpurkar, Slow and stale gradients can win the race, AISTATS 2018). With a
grace besides, it ends so long after a quarter of the gradients at the latest. A worker that still
computes then stops, and begins with the next iteration. One whose gradient is on its way, or that
finishes late gradients, begins with the iteration that it finds, in its middle, so it is late again
unless it is faster than the others: where another worker is slow in each iteration, quorums lose
more gradients than those that were late at first.

Worth. A step along the mean of m gradients makes m / (m + B) of the progress of one along the true
gradient, where B is the gradient noise scale, here in gradients of one worker (McCandlish, Kaplan,
Amodei et al., An empirical model of large-batch training, 2018, section 2.2). So m gradients are
worth g(m) = B·m / (m + B): nearly m if they are few, and never more than B. Progress in a second is

    quorum:  g(m) / T of an iteration that takes T and has m gradients
    ASP:     g(n)·D,  where D = Σ 1/t² / R,  n = R·Σ 1/t² / Σ 1/t³  and  R = Σ 1/t

with t the mean time of a worker. R updates are made in a second, so the gradient of this worker is
R·t updates old and counts as 1/(R·t) of a step: in a second D steps are made. Steps whose gradients
have different weights are as noisy as those along n gradients of equal weight. If all workers take
t, then D = 1/t and n = N; if half of 16 take 3t, D = 0.83/t and n = 11.4.

Staleness has no price of its own. The parameters move by one step while a gradient is computed.
For w' = −x·w(one step before) this is as good as no delay up to x = 1/e, where it is faster, and
limits x to π/2 in place of 2: it costs something only in directions that a learning rate near its
limit makes unstable. In 11 of the 12 cells with SGD in the suite of benchmarks, the best learning
rate of ASP is not below that of BSP. Where noise limits progress, delays hardly matter (Arjevani,
Shamir and Srebro, A tight convergence analysis for stochastic gradient descent with delayed
updates, ALT 2020).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from outpace.support.units import nanoseconds, seconds
from outpace.sync.adaptive.interface import Family, Setting, early

_GRACES: Final = (0.1, 0.2, 0.3, 0.5, 1.0)  # in times of what a quarter of the workers take
_QUORUMS: Final = 64  # that are compared at most; fewer if there are many workers
_FEWEST_QUORUMS: Final = 8
_CELLS: Final = 8192  # quorums times workers


class RunTime(NamedTuple):
    """How long one iteration of a worker takes, in seconds.

    Attributes:
        busy_s: from its start to the answers, without the time that servers held the pull; above 0.
        compute_s: of it, until the gradient was there.
    """

    busy_s: float
    compute_s: float


def predicted(
    times: Sequence[Sequence[RunTime]],
    noise: float,
    also: Setting,
    *,
    stale: bool,
    stops_late: bool,
) -> dict[Setting, list[float]]:
    """Return how many seconds the worth of one gradient takes with each setting, row by row.

    Rows that not all workers have are left out.

    Args:
        times: the last run times of each worker, oldest first; one at least.
        noise: B, above 0.
        also: a setting that is predicted whatever it is.
        stale: True if ASP is a setting.
        stops_late: True if late workers stop computing.
    """
    common = min(map(len, times))
    rows, computing = np.array([list(each)[-common:] for each in times]).transpose(2, 1, 0)
    settings = [each for each in dict.fromkeys((*_quorums(rows), also)) if each.value is not None]
    if not stops_late:
        computing = np.zeros_like(computing)  # no worker is late while it computes
    found = dict(zip(settings, _costs(rows, computing, settings, noise).tolist(), strict=True))
    if stale:
        found[Setting(Family.QUORUM, None)] = _costs_of_asp(rows, times, noise).tolist()
    return found


def _quorums(rows: np.ndarray[Any, Any]) -> Iterable[Setting]:
    """Yield BSP, quorums of at most a quarter of the workers, and larger ones with a grace."""
    count = rows.shape[1]
    first = early(count)
    yield Setting(Family.QUORUM, count)
    usual_s = float(np.median(np.sort(rows)[:, first - 1]))
    graces = [nanoseconds(share * usual_s) for share in _GRACES]
    most = min(_QUORUMS, max(_FEWEST_QUORUMS, _CELLS // count))
    for quorum in _spread(range(count, 0, -1), most):
        if quorum <= first:
            yield Setting(Family.QUORUM, quorum)
        else:
            yield from (Setting(Family.QUORUM, quorum, grace) for grace in graces)


def _spread(numbers: range, most: int) -> Collection[int]:
    """Return the numbers, or so many of them with equal distances."""
    last = len(numbers) - 1
    if last < most:
        return numbers
    return [numbers[place * last // (most - 1)] for place in range(most)]


def _costs(
    rows: np.ndarray[Any, Any],
    computing: np.ndarray[Any, Any],
    settings: Sequence[Setting],
    noise: float,
) -> np.ndarray[Any, Any]:
    """Return what a gradient's worth costs, a row for each quorum, a column for each row of times.

    Arrays in the loop have a row for each quorum and a column for each worker.

    Args:
        computing: of the times, that in which a worker stops if the iteration ends, from its start.
    """
    quorums = np.array([[each.value] for each in settings])
    graces_s = np.array([[seconds(each.grace) if each.grace else np.inf] for each in settings])
    first = early(rows.shape[1]) - 1
    # Until a worker begins whose gradient was not awaited.
    late_s = np.zeros((len(settings), rows.shape[1]))
    costs = np.empty((len(settings), len(rows)))
    for _ in range(2):
        for place, (row, computes) in enumerate(zip(rows, computing, strict=True)):
            arrivals_s = late_s + row
            ordered_s = np.sort(arrivals_s, axis=1)
            end_s = np.take_along_axis(ordered_s, quorums - 1, axis=1)
            end_s = np.minimum(end_s, ordered_s[:, first, None] + graces_s)
            arrived = arrivals_s <= end_s
            gradients = np.minimum(arrived.sum(axis=1), quorums[:, 0])  # some may tie
            costs[:, place] = end_s[:, 0] * (gradients + noise) / (noise * gradients)
            begun = late_s <= end_s
            stopped = begun & (late_s + computes > end_s)
            still_s = np.where(begun, arrivals_s, late_s) - end_s
            late_s = np.where(arrived | stopped, 0.0, still_s)
    return costs


def _costs_of_asp(
    rows: np.ndarray[Any, Any], times: Sequence[Sequence[RunTime]], noise: float
) -> np.ndarray[Any, Any]:
    """Return the same for ASP: what it costs on average, shared out by the time in each row."""
    rates = np.array([len(each) / sum(time.busy_s for time in each) for each in times])
    rate, squares, cubes = (float((rates**power).sum()) for power in (1, 2, 3))
    gradients, steps_per_s = rate * squares / cubes, squares / rate
    sums = rows.sum(axis=1)
    found: np.ndarray[Any, Any] = (
        sums / sums.mean() * (gradients + noise) / (noise * gradients) / steps_per_s
    )
    return found
