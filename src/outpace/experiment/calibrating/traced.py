"""A calibration from traces of torch.profiler: run times and all-reduces of a data-parallel run.

It predicts times, and no losses: a trace does not have the model.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from outpace.cluster.calibration.all_reduce_periods import PeriodFit, fit_periods
from outpace.cluster.calibration.run_times import ASSUMED_CV, Recording, RunTimeFit, fit_run_times
from outpace.cluster.network import AllReduceLaw, NetworkLaw
from outpace.config.cluster_files import CALIBRATED
from outpace.errors import ConfigError
from outpace.experiment.calibrating.plain import (
    compute_data,
    fit_data,
    law_data,
    rounded,
    too_short,
)
from outpace.experiment.calibrating.runs import LEAST
from outpace.experiment.calibrating.traces import Traces, read_traces
from outpace.predict.recorded.table import RunTimes

_OVERLAPPED: Final = 0.1  # share of the all-reduces' time, from which on it is said
_FEW: Final = 50  # iterations, fewer than which it is said
_ENOUGH: Final = 100  # iterations to profile, at least, where the laws are not known well
_TIMES: Final = 4  # as many iterations as now halve the errors that are chance
_FAR: Final = 0.15  # Kolmogorov distance, from which on a fit is called weak
_WIDE: Final = 0.2  # median error of the all-reduces, from which on their fit is called weak
_CLOCKS_S: Final = 1e-3  # difference of clocks, from which on it is said
_SHORTEST: Final = 1e-7  # s that all-reduces add to an iteration, at least
_FASTEST: Final = 1e16  # bytes/s


@dataclass(frozen=True, slots=True, eq=False)
class TracedCalibration:
    """Laws of the machines of a profiled run.

    Args:
        exposed_s: How much longer the all-reduces make an iteration, on average.
        size_bytes: Bytes of all gradients, which the all-reduces of an iteration add up.
        notes: Sentences about what was assumed or left out.
    """

    traces: Traces
    compute: RunTimeFit
    all_reduce: PeriodFit
    exposed_s: float
    size_bytes: int
    notes: list[str]

    @property
    def workers(self) -> int:
        return len(self.traces.ranks)

    @property
    def iterations(self) -> int:
        """Iterations that the laws were fitted to."""
        return self.traces.profiled.iterations - self.compute.warm_up

    @property
    def parameters(self) -> int:
        """Parameters of four bytes each that have the size of the gradients."""
        return max(1, round(self.size_bytes / 4))

    @property
    def alone(self) -> AllReduceLaw:
        """The cost of a round of an all-reduce that overlaps with nothing."""
        return self._round(1.0)

    @property
    def network_law(self) -> NetworkLaw:
        """The network: its links have the cost of all-reduces that overlap with nothing.

        One ring all-reduce of all gradients takes `exposed_s`; the ratio of latency and bandwidth
        is kept.
        """
        links = self.alone
        exposed = max(self.exposed_s, _SHORTEST) / self.all_reduce.at(self.size_bytes)
        return NetworkLaw(
            links.latency_s or 0.0, links.bandwidth_bytes_per_s, all_reduce=self._round(exposed)
        )

    def _round(self, share: float) -> AllReduceLaw:
        """Return the cost of a round that takes this share of the recorded time.

        A ring of N has 2(N-1) rounds with an N-th of the bytes.
        """
        rounds = 2 * (self.workers - 1)
        bandwidth = rounds / (self.workers * share * self.all_reduce.s_per_byte)
        return AllReduceLaw(
            float(rounded(share * self.all_reduce.latency_s / rounds)),
            float(rounded(min(bandwidth, _FASTEST))),
        )

    @property
    def all_reduce_s(self) -> float:
        """How long the all-reduces of an iteration take, one after the other."""
        found = self.traces.profiled
        both = found.count, found.size_bytes
        count, size_bytes = (float(part[self.compute.warm_up :].mean()) for part in both)
        return count * self.all_reduce.latency_s + size_bytes * self.all_reduce.s_per_byte

    @property
    def overlapped(self) -> float:
        """Share of the time of the all-reduces in which the ranks computed."""
        return max(0.0, 1 - self.exposed_s / self.all_reduce_s)

    def recorded(self) -> RunTimes:
        """Return the recorded run times, to be replayed."""
        seconds = self.traces.profiled.compute[self.compute.warm_up :]
        return RunTimes(seconds, np.zeros(seconds.shape, np.bool_), np.arange(self.workers))

    def data(self, run_times: str) -> dict[str, Any]:
        """Return the content of the cluster file.

        Args:
            run_times: Path of the file of recorded run times, for a `trace` law.
        """
        found = self.traces.profiled
        said: dict[str, Any] = {
            "traces": [str(rank.path.resolve()) for rank in self.traces.ranks],
            "date": datetime.date.today().isoformat(),
            "backend": self.traces.ranks[0].backend,
            "workers": self.workers,
            "iterations": self.iterations,
            "iterations_left_out": self.compute.warm_up,
            "iteration_s": rounded(float(found.seconds[self.compute.warm_up :].mean())),
            "gradient_bytes": self.size_bytes,
            "compute": fit_data(self.compute),
            "all_reduce": {
                "latency_s": rounded(self.all_reduce.latency_s),
                "bytes_per_s": rounded(1 / self.all_reduce.s_per_byte),
                "median_error": rounded(self.all_reduce.error),
                "testable": self.all_reduce.testable,
                "exposed_s": rounded(self.exposed_s),
                "overlapped": rounded(self.overlapped),
            },
        }
        if self.notes:
            said["notes"] = self.notes
        return {
            "compute": compute_data(self.compute, run_times),
            "network": law_data(self.network_law),
            CALIBRATED: said,
        }


def calibrate_traces(paths: Sequence[Path]) -> TracedCalibration:
    """Estimate the laws of the machines of the run of these traces.

    Raises:
        ConfigError: with one line, as `read_traces`; or if there are too few iterations.
    """
    traces = read_traces(paths)
    found = traces.profiled
    where = traces.ranks[0].path.parent
    if found.iterations < LEAST:
        raise ConfigError(_too_few(where, found.iterations))
    compute = fit_run_times([Recording(found.starts, found.compute)], assumed_cv=ASSUMED_CV)
    left = found.iterations - compute.warm_up
    if left < LEAST:
        raise ConfigError(_too_few(where, left))
    exposed_s = max(0.0, float(found.exposed[compute.warm_up :].mean()))
    size_bytes = int(np.median(found.size_bytes[compute.warm_up :]))
    notes: list[str] = []
    calibration = TracedCalibration(
        traces, compute, fit_periods(found.periods), exposed_s, size_bytes, notes
    )
    notes += _notes(calibration)
    return calibration


def _too_few(where: Path, count: int) -> str:
    return (
        f"{where}: the traces have {count} iterations with an all-reduce, and a calibration needs "
        f"at least {LEAST}; profile more steps, for instance schedule(wait=5, warmup=1, active=60) "
        "with prof.step() after each"
    )


def _notes(found: TracedCalibration) -> list[str]:
    notes = ["the traces have times and no losses: compare strategies with task: {kind: timing}"]
    warm_up, ranks = found.compute.warm_up, found.traces.ranks
    if warm_up:
        words = "iteration differs" if warm_up == 1 else f"{warm_up} iterations differ"
        notes.append(f"the first {words} from the others: left out")
    overlapped = round(100 * found.overlapped)
    if found.overlapped > _OVERLAPPED:
        notes.append(
            f"{overlapped} % of the all-reduces' time overlapped with computation. "
            f"network.all_reduce has only the other {100 - overlapped} %, which lengthen an "
            "iteration: this is right for DDP. For strategies that compute nothing meanwhile, such "
            "as local SGD, give network.all_reduce the latency_s and bandwidth_bytes_per_s of "
            "network"
        )
    if not found.all_reduce.has_latency:
        notes.append("all all-reduces have about one size, so their latency is taken to be 0")
    ahead = max(
        abs(rank.began_s - ranks[0].began_s + clock.ahead_s)  # times count from began_s
        for rank, clock in zip(ranks, found.traces.profiled.clocks, strict=True)
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
    weak = _weak(found)
    if weak:
        wanted = max(_ENOUGH, -(-_TIMES * found.iterations // 10) * 10)
        notes.append(
            f"{'; '.join(weak)}: do not trust differences between strategies that are smaller than "
            f"the errors above, or profile more steps: schedule(..., active={wanted})"
        )
    return notes


def _weak(found: TracedCalibration) -> list[str]:
    """Return why the laws are not known well enough, if so."""
    weak = []
    lengths = found.traces.profiled.seconds[found.compute.warm_up :]
    if short := too_short(float(lengths.sum()), float(lengths.mean())):
        weak.append(short)
    if found.iterations < _FEW:
        weak.append(f"{found.iterations} iterations are few")
    goodness = found.compute.goodness
    worst = max(goodness.distance, float(goodness.of_worker.max()))
    if found.compute.law is not None and worst > _FAR:  # else the recorded times are replayed
        weak.append(f"the run times fit weakly (Kolmogorov distance {worst:.2f})")
    if found.all_reduce.error > _WIDE:
        weak.append(
            f"the all-reduces fit weakly (median error {100 * found.all_reduce.error:.0f} %)"
        )
    return weak
