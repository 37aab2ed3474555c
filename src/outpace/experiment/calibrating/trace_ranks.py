"""Reads the traces of all ranks of a run, and finds out whether they belong together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from outpace.cluster.calibration.profiles import Profiled, profiled
from outpace.errors import ConfigError
from outpace.experiment.calibrating.trace_events import RankTrace, read_rank

_APART_S: Final = 60.0  # between the records of two ranks; more than clocks differ
_SPREAD: Final = 0.1  # of an iteration, between the ends of an all-reduce at two ranks
_EXPORT: Final = "pass one trace of the same run for each rank"


@dataclass(frozen=True, slots=True, eq=False)
class Traces:
    """The traces of all ranks of a run, in the order of ranks."""

    ranks: Sequence[RankTrace]
    profiled: Profiled


def read_traces(paths: Sequence[Path]) -> Traces:
    """Read the traces of all ranks, in any order.

    Raises:
        ConfigError: with one line, if a file cannot be read or does not say enough, a rank is
            missing or there twice, or the traces are of different runs.
    """
    ranks: dict[int, RankTrace] = {}
    for path in paths:
        found = read_rank(path)
        first = next(iter(ranks.values()), found)
        if found.world_size != first.world_size or found.backend != first.backend:
            raise ConfigError(
                f"{path}: it is of a run with {found.world_size} ranks over {found.backend}, and "
                f"{first.path} of one with {first.world_size} over {first.backend}; {_EXPORT}"
            )
        if not 0 <= found.rank < found.world_size:
            raise ConfigError(
                f"{path}: it says it is rank {found.rank} of {found.world_size}; {_EXPORT}"
            )
        if found.rank in ranks:
            raise ConfigError(
                f"{path}: it is of rank {found.rank}, and so is {ranks[found.rank].path}; {_EXPORT}"
            )
        ranks[found.rank] = found
    world_size = next(iter(ranks.values())).world_size
    missing = sorted(set(range(world_size)) - set(ranks))
    if missing:
        raise ConfigError(
            f"{', '.join(str(path) for path in paths[:3])}{', ...' if len(paths) > 3 else ''}: the "
            f"run had {world_size} ranks, and there is no trace of "
            f"{'rank' if len(missing) == 1 else 'ranks'} {_some(missing)}; {_EXPORT}"
        )
    if world_size < 2:
        raise ConfigError(
            f"{paths[0]}: the run had one rank, so it had no all-reduces to calibrate; profile a "
            "run with at least 2 ranks"
        )
    ordered = [ranks[rank] for rank in range(world_size)]
    return Traces(ordered, _together(ordered))


def _together(ranks: Sequence[RankTrace]) -> Profiled:
    """Return the iterations of the ranks. Raises ConfigError if they are not of one run."""
    first = ranks[0]
    for other in ranks[1:]:
        apart = max(other.began_s - first.ended_s, first.began_s - other.ended_s)
        if apart > _APART_S:
            raise ConfigError(
                f"{other.path}: it was recorded {apart:,.0f} s apart from {first.path}, so they "
                f"are of different runs; {_EXPORT}"
            )
    try:
        found = profiled([rank.profile for rank in ranks])
    except ValueError as error:
        raise ConfigError(
            f"{first.path.parent}: the traces do not belong together, or record too little: "
            f"{error}; {_EXPORT}"
        ) from error
    typical = float(np.median(found.seconds))
    if found.spread_s > _SPREAD * typical:
        raise ConfigError(
            f"{first.path.parent}: the traces are of different runs: the ends of an all-reduce "
            f"differ by {1e3 * found.spread_s:.3g} ms between ranks, in iterations of "
            f"{1e3 * typical:.3g} ms; {_EXPORT}"
        )
    return found


def _some(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:5]))
    return shown if len(numbers) <= 5 else f"{shown} and {len(numbers) - 5} others"
