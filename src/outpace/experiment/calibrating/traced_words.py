"""A calibration from traces in words, for the terminal and the page."""

from __future__ import annotations

from typing import Final

import numpy as np

from outpace.experiment.calibrating.traced import TracedCalibration
from outpace.experiment.calibrating.words import (
    compared,
    compute_rows,
    compute_words,
    error_words,
    rate_words,
)
from outpace.report.calibration import Shown
from outpace.report.words import SPACE, duration

_MOST: Final = 6  # rows of the table of all-reduces
_REMEDY: Final = (
    "profile DistributedDataParallel with a smaller bucket_cap_mb, for all-reduces of more sizes"
)


def shown(found: TracedCalibration) -> Shown:
    """Return what terminal and page show."""
    recorded = found.recorded().seconds
    ranks = found.traces.ranks
    return Shown(
        f"{ranks[0].path.name} to {ranks[-1].path.name}",
        law_rows(found),
        compute_rows(found.compute, recorded),
        found.notes,
        found.compute,
        recorded,
        None,
        None,
        _periods(found),
        None,
    )


def law_rows(found: TracedCalibration) -> list[tuple[str, str]]:
    """Return what was found, by key of the cluster file."""
    backend, profiled = found.traces.ranks[0].backend, found.traces.profiled
    length_s = float(profiled.seconds[found.compute.warm_up :].mean())
    law, fit = found.network_law, found.all_reduce
    rate = rate_words(law.bandwidth_bytes_per_s)
    rows = [
        (
            "from",
            f"traces of {found.workers} ranks over {backend}, {found.iterations} iterations of "
            f"{duration(length_s)}",
        ),
        ("compute", compute_words(found.compute)),
        (
            "network",
            f"latency {duration(law.latency_s)}, bandwidth {rate}: those of the all-reduces; "
            + error_words(fit.error, "", fit.testable, _REMEDY),
        ),
        (
            "all_reduce",
            f"{found.size_bytes:,} bytes of gradients in {profiled.count[-1]} all-reduces need "
            f"{duration(found.all_reduce_s)}, of which {duration(found.exposed_s)} overlap with "
            "nothing",
        ),
    ]
    return [(key, words.replace(SPACE, " ")) for key, words in rows]


def _periods(found: TracedCalibration) -> list[list[str]]:
    """Return the table of the all-reduces, with the commonest kinds of periods."""
    fit = found.all_reduce
    rows = [["all-reduces under way", "recorded s", "fitted s", "error %", "bytes", "periods"]]
    for place in np.argsort(-fit.often, kind="stable")[:_MOST].tolist():
        recorded, fitted = float(fit.seconds[place]), float(fit.fitted[place])
        times = compared(recorded, fitted, testable=fit.testable)
        size, often = f"{fit.size_bytes[place]:.0f}", f"{fit.often[place]}"
        rows.append([f"{fit.count[place]} at once", *times, size, often])
    return rows
