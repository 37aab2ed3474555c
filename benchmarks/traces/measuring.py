"""Profiles a DDP run, calibrates on its traces, and compares predictions with real runs."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from queue import Empty
from statistics import mean
from typing import Any, Final

from benchmarks.traces.training import Training, train

import outpace
from outpace.experiment.calibrating.comparing import without_slowest
from outpace.experiment.calibrating.traced import TracedCalibration, calibrate_traces
from outpace.experiment.calibrating.traced_words import shown
from outpace.experiment.calibrating.writing import write_calibration

OWN: Final = "as profiled"
WITHOUT: Final = "without the slow rank"
GOALS: Final = {OWN: 0.03, WITHOUT: 0.08}
SLOW: Final = 1  # the slow rank
_LIMIT_S: Final = 300.0  # for all ranks to report, or the run has failed
_ITERATIONS: Final = 400  # of a prediction


@dataclass(frozen=True, slots=True)
class Outcome:
    """The mean time of a step, in s."""

    workers: int
    what: str
    real_s: float
    predicted_s: float

    @property
    def error(self) -> float:
        return self.predicted_s / self.real_s - 1

    @property
    def met(self) -> bool:
        return abs(self.error) <= GOALS[self.what]

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def measure(training: Training, out: Path, say: Callable[[str], None]) -> list[Outcome]:
    """Run with a slow rank and a profiler, then without both; predict both from the traces.

    Args:
        training: With the slow rank; its `traces` is ignored.
        out: A folder for traces and cluster file.
    """
    out.mkdir(parents=True)
    alike = replace(training, traces=None, slow={}, seed=training.seed + 1)
    profiled_s, alike_s = steps_s([replace(training, traces=out), alike])
    say(
        f"{training.workers} ranks, profiled: {1e3 * profiled_s:.1f} ms a step; without the slow "
        f"one: {1e3 * alike_s:.1f} ms"
    )
    found = calibrate_traces([out / f"rank{rank}.json" for rank in range(training.workers)])
    cluster = out / "cluster.yaml"
    write_calibration(found, shown(found), cluster, cluster.with_suffix(".html"))
    without = without_slowest(found)
    if without is None or without[0] != SLOW:
        raise RuntimeError(
            f"rank {SLOW} is not found to be slow, or no law describes the run times; is the "
            "machine busy?"
        )
    return [
        Outcome(training.workers, OWN, profiled_s, _predicted(found, cluster, {})),
        Outcome(training.workers, WITHOUT, alike_s, _predicted(found, cluster, without[2])),
    ]


def _predicted(found: TracedCalibration, cluster: Path, changes: dict[str, Any]) -> float:
    experiment = {
        "include": str(cluster),
        "workers": found.workers,
        "task": {"kind": "timing", "parameters": found.parameters},
        "sync": {"kind": "ssgd"},
        "stop": {"iterations": _ITERATIONS},
        **changes,
    }
    return float(outpace.simulate(experiment).summary["virtual_time_s"]) / _ITERATIONS


def steps_s(trainings: Sequence[Training]) -> list[float]:
    """Run the trainings one after the other; return the mean time of a step of each, in s.

    Raises:
        RuntimeError: if a rank failed, or they took too long.
    """
    context = get_context("spawn")
    results = context.Queue()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = [
        context.Process(target=train, args=(rank, trainings, port, results), daemon=True)
        for rank in range(trainings[0].workers)
    ]
    try:
        for rank in ranks:
            rank.start()
        found = [results.get(timeout=_LIMIT_S) for _ in ranks]
        for rank in ranks:
            rank.join(_LIMIT_S)
        if any(rank.exitcode != 0 for rank in ranks):
            raise RuntimeError(f"ranks ended with {[rank.exitcode for rank in ranks]}")
    except Empty:
        codes = [rank.exitcode for rank in ranks]
        raise RuntimeError(f"after {_LIMIT_S:.0f} s ranks are missing: {codes}") from None
    finally:
        for rank in ranks:
            rank.kill()
    return [
        mean((ends[-1] - ends[0]) / (len(ends) - 1) for ends in of_training)
        for of_training in zip(*found, strict=True)
    ]
