"""Reads the traces of all ranks of a run, and checks that they belong together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from outpace.cluster.calibration.all_reduces import AllReduceTimes
from outpace.cluster.calibration.profiles import Profiled, profiled
from outpace.cluster.calibration.run_times import Recording, warm_up_of
from outpace.errors import ConfigError
from outpace.experiment.calibrating.runs import LEAST, Run
from outpace.experiment.calibrating.trace_events import RankTrace, read_rank

_APART_S: Final = 60.0  # largest difference between the clocks of two ranks of one run
# share of an iteration by which the ends of an all-reduce at two ranks may differ
_SPREAD: Final = 0.1
_CLOCKS_S: Final = 1e-3  # difference of clocks above which a note is made
_SHORTEST: Final = 1e-7  # least time in s that all-reduces add to an iteration
_EXPORT: Final = "pass one trace of the same run for each rank"


def read_traces(paths: Sequence[Path]) -> Run:
    """Read the traces of all ranks, in any order.

    Raises:
        ConfigError: with one line, if a file cannot be read or lacks data, if a rank is missing or
            occurs twice, or if the traces are from different runs.
    """
    by_rank: dict[int, RankTrace] = {}
    for path in paths:
        found = read_rank(path)
        first = next(iter(by_rank.values()), found)
        if found.world_size != first.world_size or found.backend != first.backend:
            raise ConfigError(
                f"{path}: it comes from a run with {found.world_size} ranks over {found.backend}, "
                f"and {first.path} from a run with {first.world_size} over {first.backend}; "
                f"{_EXPORT}"
            )
        if found.rank in by_rank:
            other = by_rank[found.rank].path
            raise ConfigError(
                f"{path}: it is of rank {found.rank}, and {other} is also of this rank; {_EXPORT}"
            )
        by_rank[found.rank] = found
    world_size = first.world_size
    if missing := sorted(set(range(world_size)) - by_rank.keys()):
        raise ConfigError(
            f"{first.path}: the run had {world_size} ranks, and there is no trace of rank "
            f"{missing[0]}{f' and {len(missing) - 1} others' if missing[1:] else ''}; {_EXPORT}"
        )
    if world_size < 2:
        raise ConfigError(
            f"{paths[0]}: the run had one rank, so it had no all-reduces to calibrate; profile a "
            "run with at least 2 ranks"
        )
    ranks = [by_rank[rank] for rank in range(world_size)]
    run = _together(ranks)
    later = slice(warm_up_of(run.compute), None)
    exposed_s = float(run.exposed[later].mean())
    return Run(
        ranks[0].path.parent,
        recording=Recording(run.starts, run.compute),
        measured=None,
        evaluations=np.zeros((0, world_size)),
        all_reduces=AllReduceTimes(
            run.alone,
            np.median(run.size_bytes[later], keepdims=True),
            np.array([max(exposed_s, _SHORTEST)]),
        ),
        origin={
            "traces": [str(rank.path.resolve()) for rank in ranks],
            "backend": ranks[0].backend,
            "iteration_s": float(run.seconds[later].mean()),
        },
        notes=_notes(ranks, run),
    )


def _together(ranks: Sequence[RankTrace]) -> Profiled:
    """Return the iterations of the ranks. Raises ConfigError if they are not from one run."""
    where = ranks[0].path.parent
    try:
        found = profiled([rank.profile for rank in ranks])
    except ValueError as error:
        raise ConfigError(
            f"{where}: the traces do not belong together, or record too little: {error}; {_EXPORT}"
        ) from error
    if len(found.seconds) < LEAST:
        raise ConfigError(
            f"{where}: the traces have {len(found.seconds)} iterations with an "
            f"all-reduce, and a calibration needs at least {LEAST}; profile more steps: "
            "schedule(wait=5, warmup=1, active=60) with prof.step() after each"
        )
    typical = float(np.median(found.seconds))
    if found.spread_s > _SPREAD * typical or _ahead_s(ranks, found) > _APART_S:
        raise ConfigError(
            f"{where}: the traces are of different runs: the ends of an all-reduce "
            f"differ by {1e3 * found.spread_s:.3g} ms between ranks, in iterations of "
            f"{1e3 * typical:.3g} ms, and clocks by {_ahead_s(ranks, found):,.3g} s; {_EXPORT}"
        )
    return found


def _notes(ranks: Sequence[RankTrace], run: Profiled) -> list[str]:
    """Return sentences about data that traces do not have, and about the assumptions."""
    notes = [
        "the traces have times and no losses: compare strategies with task: {kind: timing}",
        "the traces have no servers: messages to them cost what all-reduces do, their work nothing",
    ]
    if (ahead_s := _ahead_s(ranks, run)) > _CLOCKS_S:
        notes.append(
            f"the clocks of the ranks differ by up to {1e3 * ahead_s:,.3g} ms: brought together by "
            "the ends of the all-reduces"
        )
    if "nccl" in ranks[0].backend:
        notes.append(
            "traces of NCCL are read as their documentation says, which was not tried on a GPU: "
            "check the length of an iteration against your own measurement"
        )
    return notes


def _ahead_s(ranks: Sequence[RankTrace], run: Profiled) -> float:
    """Return the largest difference of a clock from rank 0's clock, in s."""
    return max(
        abs(rank.began_s - ranks[0].began_s + clock.ahead_s)  # times count from began_s
        for rank, clock in zip(ranks, run.clocks, strict=True)
    )
