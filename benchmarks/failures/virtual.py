"""How long random failures of random clusters take in virtual time (`tests.faults`)."""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

from benchmarks.failures.rows import Row, row
from tests.faults.scenario import Scenario
from tests.faults.search import problem_of

GOAL_S = 120.0
_SEEDS = 500  # of the goal
_PROCESSES = 2


def virtual(seeds: int) -> list[Row]:
    """Return the seconds for `seeds` scenarios, as many as for 500, and how many fail.

    On a machine with other load, processes wait for a processor: the goal is for their own time.
    """
    with ProcessPoolExecutor(_PROCESSES, get_context("spawn")) as pool:
        list(pool.map(_tried, [0] * _PROCESSES))  # imports
        started = time.perf_counter()
        tried = list(pool.map(_tried, range(seeds), chunksize=5))
        took_s = time.perf_counter() - started
    busy_s = sum(each.processor_s for each in tried) / _PROCESSES
    failed = float(sum(each.failed for each in tried))
    name = f"{_SEEDS} random clusters with failures in virtual time, {_PROCESSES} processes"
    scale = _SEEDS / seeds
    return [
        row(f"{name}, time of each on its processor", [busy_s * scale], unit="s", goal=GOAL_S),
        row(f"{name}, on the wall", [took_s * scale], unit="s"),
        row(f"of {seeds}, those that broke a promise", [failed], unit="clusters", goal=0.0),
    ]


class _Tried(NamedTuple):
    failed: bool
    processor_s: float


def _tried(seed: int) -> _Tried:
    began = time.process_time()
    problem = problem_of(Scenario.of(seed))
    return _Tried(bool(problem), time.process_time() - began)
