"""Estimates the laws of a cluster from traces of torch.profiler of a data-parallel run.

They predict times, and no losses: a trace does not have the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from outpace.cluster.calibration.all_reduce_periods import PeriodFit, fit_periods
from outpace.cluster.calibration.run_times import ASSUMED_CV, Recording, RunTimeFit, fit_run_times
from outpace.cluster.network import AllReduceLaw, NetworkLaw
from outpace.errors import ConfigError
from outpace.experiment.calibrating.calibration import Calibration, left_out, plain
from outpace.experiment.calibrating.runs import LEAST
from outpace.experiment.calibrating.trace_ranks import Traces, read_traces
from outpace.experiment.calibrating.words import (
    compared,
    compute_rows,
    compute_words,
    error_words,
    in_words,
    rate_words,
)
from outpace.predict.recorded import too_short
from outpace.report.calibration import Shown
from outpace.report.words import duration

_OVERLAPPED: Final = 0.1  # share of the all-reduces' time, from which on it is said
_FEW: Final = 50  # iterations, fewer than which it is said
_ENOUGH: Final = 100  # iterations to profile, at least, where the laws are not known well
_TIMES: Final = 4  # as many iterations as now halve the errors that are chance
_FAR: Final = 0.15  # Kolmogorov distance, from which on a fit is called weak
_WIDE: Final = 0.2  # median error of the all-reduces, from which on their fit is called weak
_CLOCKS_S: Final = 1e-3  # difference of clocks, from which on it is said
_SHORTEST: Final = 1e-7  # s that all-reduces add to an iteration, at least
_FASTEST: Final = 1e16  # bytes/s
_SLOWER: Final = 1.1  # mean run time of a slow rank over that of the median of the others
_MOST: Final = 6  # rows of the table of all-reduces
_REMEDY: Final = (
    "profile DistributedDataParallel with a smaller bucket_cap_mb, for all-reduces of more sizes"
)


@dataclass(frozen=True, slots=True, eq=False)
class TracedCalibration:
    """A calibration, and what else is compared on the profiled cluster.

    Args:
        size_bytes: Bytes of all gradients, which the all-reduces of an iteration add up.
        alone: The cost of a round of an all-reduce that overlaps with nothing.
        slow: The slowest rank and the median of the other ranks, which may replace it; None if it
            takes less than 10 % longer.
        factors: Those of the ranks without the slow one; empty if the law has none.
    """

    calibration: Calibration
    size_bytes: int
    alone: AllReduceLaw
    slow: tuple[int, int] | None
    factors: Sequence[float]

    @property
    def workers(self) -> int:
        return len(self.calibration.shown.recorded[0])

    @property
    def parameters(self) -> int:
        """Parameters of four bytes each that have the size of the gradients."""
        return max(1, round(self.size_bytes / 4))


def calibrate_traces(paths: Sequence[Path]) -> TracedCalibration:
    """Estimate the laws of the machines of the run of these traces.

    Raises:
        ConfigError: with one line, as `read_traces`; or if there are too few iterations.
    """
    traces = read_traces(paths)
    found, ranks = traces.profiled, traces.ranks
    _require_enough(ranks[0].path.parent, found.iterations)
    fit = fit_run_times([Recording(found.starts, found.compute)], assumed_cv=ASSUMED_CV)
    _require_enough(ranks[0].path.parent, found.iterations - fit.warm_up)
    later = slice(fit.warm_up, None)
    periods = fit_periods(found.periods)
    exposed_s = max(0.0, float(found.exposed[later].mean()))
    size_bytes = int(np.median(found.size_bytes[later]))
    # How long the all-reduces of an iteration take, one after the other.
    count, sizes = (float(part[later].mean()) for part in (found.count, found.size_bytes))
    all_reduce_s = count * periods.latency_s + sizes * periods.s_per_byte
    overlapped = max(0.0, 1 - exposed_s / all_reduce_s)
    recorded, length_s = found.compute[later], float(found.seconds[later].mean())
    alone = _round(periods, len(ranks), 1.0)
    law = NetworkLaw(
        alone.latency_s or 0.0,
        alone.bandwidth_bytes_per_s,
        all_reduce=_round(periods, len(ranks), max(exposed_s, _SHORTEST) / periods.at(size_bytes)),
    )
    said = {
        "traces": [str(rank.path.resolve()) for rank in ranks],
        "backend": ranks[0].backend,
        "workers": len(ranks),
        "iterations": len(recorded),
        "iterations_left_out": fit.warm_up,
        "iteration_s": length_s,
        "gradient_bytes": size_bytes,
        "all_reduce": {
            "latency_s": periods.latency_s,
            "bytes_per_s": 1 / periods.s_per_byte,
            "median_error": periods.error,
            "testable": periods.testable,
            "exposed_s": exposed_s,
            "overlapped": overlapped,
        },
    }
    words = {
        "from": f"traces of {len(ranks)} ranks over {ranks[0].backend}, {len(recorded)} "
        f"iterations of {duration(length_s)}",
        "compute": compute_words(fit),
        "network": f"latency {duration(law.latency_s)}, bandwidth "
        f"{rate_words(law.bandwidth_bytes_per_s)}: those of the all-reduces; "
        + error_words(periods.error, "", periods.testable, _REMEDY),
        "all_reduce": f"{size_bytes:,} bytes of gradients in {found.count[-1]} all-reduces need "
        f"{duration(all_reduce_s)}, and make an iteration {duration(exposed_s)} longer",
    }
    slow, factors = _without_slowest(fit, recorded)
    notes = ["the traces have times and no losses: compare strategies with task: {kind: timing}"]
    notes += left_out(fit.warm_up) + _notes(traces, periods, overlapped)
    if slow is not None and not factors:
        notes.append(_left_out_variant(fit, *slow))
    weak = _weak(fit, periods, found.seconds[later])
    if weak:
        wanted = max(_ENOUGH, -(-_TIMES * len(recorded) // 10) * 10)
        notes.append(
            f"{'; '.join(weak)}: do not trust differences between strategies that are smaller than "
            f"the errors above, or profile more steps: schedule(..., active={wanted})"
        )
    shown = Shown(
        f"{ranks[0].path.name} to {ranks[-1].path.name}",
        in_words(words),
        compute_rows(fit, recorded),
        notes,
        fit,
        recorded,
        all_reduce_rows=_period_rows(periods),
    )
    calibration = Calibration(shown, {"network": law}, said)
    return TracedCalibration(calibration, size_bytes, alone, slow, factors)


def _require_enough(where: Path, count: int) -> None:
    if count < LEAST:
        raise ConfigError(
            f"{where}: the traces have {count} iterations with an all-reduce, and a calibration "
            f"needs at least {LEAST}; profile more steps, for instance schedule(wait=5, warmup=1, "
            "active=60) with prof.step() after each"
        )


def _round(periods: PeriodFit, workers: int, share: float) -> AllReduceLaw:
    """Return the cost of a round that takes this share of the recorded time of all-reduces.

    A ring of N has 2(N-1) rounds with an N-th of the bytes. The ratio of latency and bandwidth is
    kept.
    """
    rounds = 2 * (workers - 1)
    bandwidth = rounds / (workers * share * periods.s_per_byte)
    latency_s: float = plain(share * periods.latency_s / rounds)
    return AllReduceLaw(latency_s, plain(min(bandwidth, _FASTEST)))


def _without_slowest(
    fit: RunTimeFit, recorded: np.ndarray[Any, Any]
) -> tuple[tuple[int, int] | None, list[float]]:
    """Return the slowest rank, the rank that replaces it, and the factors of all ranks then.

    The median of the other ranks replaces it. There are no factors if run times are replayed: the
    copy of a rank is replayed from another iteration on, so ranks that were slow together would be
    slow one after the other.
    """
    means = recorded.mean(axis=0)
    ranks = np.argsort(means)
    slow, like = int(ranks[-1]), int(ranks[(len(ranks) - 1) // 2])
    if means[slow] < _SLOWER * means[like]:
        return None, []
    factors = [] if fit.law is None else list(fit.law.factors)
    if factors:
        factors[slow] = factors[like]
    return (slow, like), factors


def _left_out_variant(fit: RunTimeFit, slow: int, like: int) -> str:
    """Return why the comparison has no variant without the slow rank."""
    why = (
        "the recorded run times are replayed, and a copy of another rank would be slow at other "
        "times than that rank"
        if fit.law is None
        else "the ranks differ no more than chance makes them"
    )
    return (
        f"rank {slow} is slow, but the comparison has no variant in which it is as fast as rank "
        f"{like}: {why}. Profile more steps, for a law of the run times"
    )


def _notes(traces: Traces, periods: PeriodFit, overlapped: float) -> list[str]:
    """Return sentences about all-reduces, clocks and what traces do not have."""
    notes, ranks = [], traces.ranks
    percent = round(100 * overlapped)
    if overlapped > _OVERLAPPED:
        notes.append(
            f"{percent} % of the all-reduces' time overlapped with computation. "
            f"network.all_reduce has only the other {100 - percent} %, which lengthen an "
            "iteration: this is right for DDP. For strategies that compute nothing meanwhile, such "
            "as local SGD, give network.all_reduce the latency_s and bandwidth_bytes_per_s of "
            "network"
        )
    if not periods.has_latency:
        notes.append("all all-reduces have about one size, so their latency is taken to be 0")
    ahead = max(
        abs(rank.began_s - ranks[0].began_s + clock.ahead_s)  # times count from began_s
        for rank, clock in zip(ranks, traces.profiled.clocks, strict=True)
    )
    if ahead > _CLOCKS_S:
        notes.append(
            f"the clocks of the ranks differ by up to {1e3 * ahead:,.3g} ms: brought together by "
            "the ends of the all-reduces"
        )
    if "nccl" in ranks[0].backend:
        notes.append(
            "traces of NCCL are read as their documentation says, which was not tried on a GPU: "
            "check the length of an iteration against your own measurement"
        )
    notes.append(
        "the traces have no servers: messages to them cost what the network says, their work "
        "nothing"
    )
    return notes


def _weak(fit: RunTimeFit, periods: PeriodFit, lengths: np.ndarray[Any, Any]) -> list[str]:
    """Return why the laws are not known well enough, if so.

    Args:
        lengths: Of the iterations, in s.
    """
    short = too_short(float(lengths.sum()), float(lengths.mean()))
    weak = [short] if short else []
    if len(lengths) < _FEW:
        weak.append(f"{len(lengths)} iterations are few")
    worst = max(fit.goodness.distance, float(fit.goodness.of_worker.max()))
    if fit.law is not None and worst > _FAR:  # else the recorded times are replayed
        weak.append(f"the run times fit weakly (Kolmogorov distance {worst:.2f})")
    if periods.error > _WIDE:
        weak.append(f"the all-reduces fit weakly (median error {100 * periods.error:.0f} %)")
    return weak


def _period_rows(fit: PeriodFit) -> list[list[str]]:
    """Return the table of the all-reduces, with the commonest kinds of periods."""
    rows = [["all-reduces under way", "recorded s", "fitted s", "error %", "bytes", "periods"]]
    for place in np.argsort(-fit.often, kind="stable")[:_MOST].tolist():
        recorded, fitted = float(fit.seconds[place]), float(fit.fitted[place])
        times = compared(recorded, fitted, testable=fit.testable)
        size, often = f"{fit.size_bytes[place]:.0f}", f"{fit.often[place]}"
        rows.append([f"{fit.count[place]} at once", *times, size, often])
    return rows
