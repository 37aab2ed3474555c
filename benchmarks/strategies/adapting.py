"""Measures adaptive strategies beside fixed ones: python -m benchmarks.strategies.adapting CELL ...

CELL is TASK/CLUSTER, also digits-cnn/moving, whose stragglers move. Each strategy gets its learning
rate and its five seeds as in the suite. `--strategies` takes names of STRATEGIES.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from typing import Any, Final

from benchmarks.strategies.rates import search
from benchmarks.strategies.suite import Cell, cells, with_data

from outpace.errors import DivergenceError
from outpace.experiment.running import simulate
from outpace.support.estimates import TimeTo
from outpace.support.yaml_files import merged

STRATEGIES: Final[Mapping[str, Mapping[str, Any]]] = {
    "adaptive": {"kind": "adaptive"},
    "adaptive-asp": {"kind": "adaptive", "stale": True},
    "sync-switch": {"kind": "adaptive", "rule": "sync-switch", "after": 10},
    "bsp": {"kind": "bsp"},
    "asp": {"kind": "asp"},
    "drop-quarter": {"kind": "drop-stragglers", "quorum_percent": 75},
    "last-5": {"kind": "cutoff", "model": "last-5", "decision": "deadline", "warmup": 5},
}


def time_to(cell: Cell, sync: Mapping[str, Any], rate: float, seed: int, limit_s: float) -> TimeTo:
    """Return when a run had the target accuracy, or that it had it not until the limit."""
    stop = {"target_accuracy": cell.target, "virtual_time_s": limit_s}
    data = merged(cell.data, {"seed": seed, "optimizer": {"lr": rate}, "stop": stop})
    try:
        found = simulate({**data, "sync": dict(sync)}).summary["time_to_target_s"]
    except DivergenceError:
        found = None
    return TimeTo(limit_s, reached=False) if found is None else TimeTo(found, reached=True)


def measure(cell: Cell, sync: Mapping[str, Any], limit_s: float) -> tuple[float, list[TimeTo]]:
    """Return the learning rate that the search of the suite chose, and the times of its seeds."""
    tuning = cell.tuning
    trials = search(cell.first_rate, tuning.runs, tuning.finalists, tuning.seeds, limit_s)
    trial = next(trials)
    while True:
        time = time_to(cell, sync, trial.rate, trial.seed, trial.limit_s)
        try:
            trial = trials.send(time)
        except StopIteration as stop:
            rate: float = stop.value.rate
            return rate, [time_to(cell, sync, rate, seed, limit_s) for seed in cell.seeds]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cells", nargs="+", metavar="CELL")
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=list(STRATEGIES))
    parser.add_argument("--limit-s", type=float, default=20.0, help="of virtual time, for each run")
    asked = parser.parse_args()
    for cell in cells(asked.cells):
        for name in asked.strategies:
            rate, times = measure(with_data(cell), STRATEGIES[name], asked.limit_s)
            mean_s = math.fsum(time.time_s for time in times) / len(times)
            each = ", ".join(f"{time.time_s:.1f}{'' if time.reached else '+'}" for time in times)
            print(f"{cell.name} {name}: {mean_s:.2f} s at rate {rate:.3g} ({each})", flush=True)


if __name__ == "__main__":
    main()
