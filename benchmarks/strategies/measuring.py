"""Measures strategies: first the runs that choose a learning rate, then the runs that count.

A strategy is measured in one process, and several of them at a time. Results are saved in the order
of the strategies, each after all earlier ones.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, TypeVar

from benchmarks.strategies.outcome import Measured, Outcome, read, save
from benchmarks.strategies.rates import Trial, search
from benchmarks.strategies.suite import Cell, Tuning, with_data

from outpace.errors import DivergenceError, RunError
from outpace.experiment.advising.candidates import Candidate
from outpace.experiment.running import simulate
from outpace.support.estimates import TimeTo

_QUICK: Final = ("BSP", "SSP 4", "HPSGD")
Given = TypeVar("Given")
Found = TypeVar("Found")


def record(
    cells: Sequence[Cell],
    origin: Mapping[str, str],
    folder: Path,
    processes: int,
    *,
    missing: bool = False,
) -> None:
    """Measure the cells and write a file for each into `folder`, again after each strategy.

    Args:
        origin: date and commit, see `benchmarks.recorded.origin`.
        processes: number of strategies that are measured at a time.
        missing: do not repeat strategies that have a result with the present settings, even if
            other code made it.

    Raises:
        ConfigError: if the data of a cell are missing, before anything is run; or if a strategy
            cannot be run.
        RunError: if a run fails for another reason than divergence.
    """
    known = {cell.name: read(cell, folder) if missing else None for cell in cells}
    outcomes = [_begun(known[cell.name], cell, origin) for cell in cells]
    outcomes = [each for each in outcomes if not each.complete]
    ready = {each.cell.name: with_data(each.cell) for each in outcomes}
    for outcome in outcomes:
        cell = ready[outcome.cell.name]
        # BSP first: the other strategies may take a multiple of its time.
        for some in (outcome.missing[:1], outcome.missing[1:]):
            bsp = outcome.bsp
            limit_s = cell.limit_s if bsp is None else longest_s(cell, bsp)
            for measured in in_processes(partial(measure, cell, limit_s), some, processes):
                print(f"{cell.name}: {measured.name}", file=sys.stderr, flush=True)
                outcome = outcome.having(measured)
                save(outcome, folder)


def in_processes(
    work: Callable[[Given], Found], given: Iterable[Given], processes: int
) -> Iterator[Found]:
    """Yield what the work returns for each, in order; with one process, in this one."""
    if processes == 1:
        yield from map(work, given)
        return
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        yield from pool.map(work, given)


def measure(cell: Cell, limit_s: float, candidate: Candidate) -> Measured:
    """Measure one strategy.

    Args:
        cell: the cell with the paths of its data, see `suite.with_data`.
        limit_s: the longest run, in virtual time.
    """
    begun, diverged = time.process_time(), 0

    def run(trial: Trial) -> TimeTo:
        nonlocal diverged
        data = cell.configuration(candidate, trial.rate, trial.seed, trial.limit_s)
        try:
            found = time_to_target(data, cell.target, trial.limit_s)
        except DivergenceError:  # it would not reach the target later
            diverged += 1
            found = TimeTo(trial.limit_s, reached=False)
        except RunError as error:
            raise RunError(f"{cell.name}, {candidate.name}: {error}") from error
        return found

    tuning = cell.tuning
    tuned = search(cell.first_rate, tuning.runs, tuning.finalists, tuning.seeds, limit_s, run)
    times = tuple((seed, run(Trial(tuned.rate, seed, limit_s))) for seed in cell.seeds)
    return Measured(candidate, tuned, times, time.process_time() - begun, diverged)


def time_to_target(data: Mapping[str, Any], target: float, limit_s: float) -> TimeTo:
    """Simulate; return when an evaluation first had the target accuracy.

    Raises:
        RunError: if the run fails; `DivergenceError` if it diverges.
    """
    rows = simulate(data).metrics
    pairs = zip(rows["time_s"].to_pylist(), rows["accuracy"].to_pylist(), strict=True)
    for time_s, accuracy in pairs:
        if accuracy is not None and accuracy >= target:
            return TimeTo(time_s, reached=True)
    return TimeTo(limit_s, reached=False)


def longest_s(cell: Cell, bsp: Measured) -> float:
    """Return the longest run of the other strategies, in virtual time."""
    mean_s = math.fsum(time.time_s for _, time in bsp.times) / len(bsp.times)
    return cell.most * mean_s


def _begun(known: Outcome | None, cell: Cell, origin: Mapping[str, str]) -> Outcome:
    """Return the known results of a cell, to continue with; its commits are all that made them."""
    if known is None:
        return Outcome(cell, origin)
    commits = known.origin["commit"].split(", ")
    if known.complete or origin["commit"] in commits:
        return known
    return replace(known, origin={**origin, "commit": ", ".join([*commits, origin["commit"]])})


def quick(cell: Cell) -> Cell:
    """Return the cell with few strategies, workers, rates and seeds, and a target soon reached."""
    data = {**cell.data, "workers": 4, "servers": 2, "target": {"accuracy": 0.3}}
    return replace(
        cell,
        data=data,
        only=_QUICK,
        seeds=(0, 1),
        tuning=Tuning(runs=2, finalists=1, seeds=(1000,)),
        limit_s=4,
    )
