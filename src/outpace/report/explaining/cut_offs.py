"""Run times of workers that were cut off.

The time of a computation that was cut off is a lower bound. What it would have been is drawn from
the whole run times of the same worker that are longer, as multiples of the median of their
iteration: those of the warm-up, in which all workers finish, and of other iterations in which it
was not cut off. If there are fewer than FEWEST, those of all workers are taken; if none is longer,
the bound itself.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from outpace.record.run_times.run_folder import Of, read_run
from outpace.report.explaining.charging import Floats
from outpace.report.explaining.tables import Tables

FEWEST: Final = 5


def completed(tables: Tables) -> tuple[Floats, NDArray[np.bool_] | None]:
    """Return the run times of a run with cut-offs as if no worker had been cut off, shape (T, N).

    Also the mask of those that were drawn; None if the run has no cut-offs.
    """
    seconds = tables.seconds
    if not tables.has_cut_offs:
        return seconds, None
    rows = len(seconds)
    cut = np.zeros(seconds.shape, np.bool_)
    censored = read_run(tables.folder, Of.COMPUTE, None)[0].censored[:rows]
    cut[: len(censored)] = censored
    return without_cut_offs(seconds, cut), cut


def without_cut_offs(seconds: Floats, cut: NDArray[np.bool_]) -> Floats:
    """Return run times of which those that are cut off are replaced by longer ones.

    Args:
        seconds: Shape (T, N); NaN where a worker has no run time.
        cut: True where it is a lower bound, shape (T, N).
    """
    found = seconds.copy()
    whole = np.where(cut | ~(seconds > 0), np.nan, seconds)
    some = ~np.isnan(whole).all(axis=1)
    usual = np.full(len(seconds), np.nan)
    usual[some] = np.nanmedian(whole[some], axis=1)
    ratios = whole / usual[:, None]
    every = np.sort(ratios[~np.isnan(ratios)])
    source = np.random.default_rng(0)
    for worker in np.flatnonzero(cut.any(axis=0)).tolist():
        mine = np.sort(ratios[~np.isnan(ratios[:, worker]), worker])
        for row in np.flatnonzero(cut[:, worker] & some).tolist():
            bound = seconds[row, worker] / usual[row]
            longer = mine[np.searchsorted(mine, bound) :]
            if len(longer) < FEWEST:
                longer = every[np.searchsorted(every, bound) :]
            ratio = source.choice(longer) if len(longer) else bound
            found[row, worker] = max(ratio, bound) * usual[row]
    return found
