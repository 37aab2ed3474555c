"""Profiles a DDP run, calibrates on its traces, and compares predictions with real runs."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from queue import Empty
from statistics import mean
from typing import Any, Final

from benchmarks.traces.training import Training, train

import outpace
from outpace.experiment.calibrating import calibrate_traces, write_calibration
from outpace.experiment.calibrating.comparing import comparison

OWN: Final = "as profiled"
WITHOUT: Final = "without the slow rank"
LOCAL: Final = "local SGD, average every 8"
GOALS: Final = {OWN: 0.03, WITHOUT: 0.08, LOCAL: 0.08}
EVERY: Final = 8  # steps of local SGD
SLOW: Final = 1  # the slow rank
_VARIANTS: Final = {OWN: "as profiled", WITHOUT: f"rank {SLOW} as fast as", LOCAL: "local SGD"}
_LIMIT_S: Final = 300.0  # for all ranks to report, or the run has failed
_ITERATIONS: Final = 400  # of a prediction


@dataclass(frozen=True, slots=True)
class Outcome:
    """The mean time of a step, in s."""

    workers: int
    what: str
    seed: int
    real_s: float
    predicted_s: float

    @property
    def error(self) -> float:
        return self.predicted_s / self.real_s - 1

    @property
    def met(self) -> bool:
        return abs(self.error) <= GOALS[self.what]


def measure(training: Training, out: Path, say: Callable[[str], object]) -> list[Outcome]:
    """Run DDP with a slow rank and a profiler; predict it and two other runs from the traces.

    The others are DDP without the slow rank, and local SGD with it, both without a profiler.

    Args:
        training: DDP with the slow rank; its `traces` is ignored.
        out: A folder for traces and cluster file.
    """
    out.mkdir(parents=True)
    seed = training.seed + 1000
    runs = {
        OWN: replace(training, traces=out),
        WITHOUT: replace(training, traces=None, slow={}, seed=seed),
        LOCAL: replace(training, traces=None, every=EVERY, seed=seed),
    }
    real_s = dict(zip(runs, steps_s(list(runs.values())), strict=True))
    shortly = ", ".join(f"{what} {1e3 * time:.1f} ms" for what, time in real_s.items())
    say(f"{training.workers} ranks, seed {training.seed}, a step: {shortly}")
    found = calibrate_traces([out / f"rank{rank}.json" for rank in range(training.workers)])
    cluster = out / "cluster.yaml"
    write_calibration(found, cluster, cluster.with_suffix(".html"))
    plan, _ = comparison(found, str(cluster))
    variants = {variant.pop("name"): variant for variant in plan.pop("variants")}
    changes = {
        what: next((each for name, each in variants.items() if words in name), None)
        for what, words in _VARIANTS.items()
    }
    if changes[WITHOUT] is None:
        raise RuntimeError(
            f"rank {SLOW} is not found to be slow, or no law describes the run times; is the "
            "machine busy?"
        )
    return [
        Outcome(
            training.workers,
            what,
            training.seed,
            real_s[what],
            _predicted({**plan, **(changes[what] or {})}),
        )
        for what in runs
    ]


def _predicted(experiment: dict[str, Any]) -> float:
    stop = {"stop": {"iterations": _ITERATIONS}}
    summary = outpace.simulate({**experiment, **stop}).summary
    return float(summary["virtual_time_s"]) / _ITERATIONS


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
