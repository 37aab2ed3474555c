"""How much the gradients of an iteration are worth in a second, without training.

    python -m benchmarks.strategies.worth          # a table: some minutes of processor time
    python -m benchmarks.strategies.worth --quick  # two clusters, 2 s of virtual time

The clusters of the suite in virtual time, without computing gradients. An iteration in which k
gradients counted is worth B·k / (k + B), where B is the gradient noise scale, in gradients of one
worker. The table has the worth in a second, in parts of that of all workers' gradients in each
0.1 s, the mean time of a step. `adaptive` is told B (`noise_scale`). This tells rules apart that
times to a target do not: over seeds those differ by 10 to 15 %.

The last column is a limit for all that begin an iteration together: each iteration ends after the
number of gradients that is best, with all run times known beforehand, and late workers stop. What
an iteration takes besides is that of BSP. Where servers or the network are slow, that depends on
the number of pushes, and there is no such limit.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
from benchmarks.strategies.command import described_parser, exit_code
from benchmarks.strategies.suite import CLUSTERS, FURTHER, Cell, cells, with_data

from outpace.config.reading import experiment_from
from outpace.experiment.running import simulate
from outpace.support.units import nanoseconds

Times: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]

STEP_S: Final = 0.1
SECONDS: Final = 40.0
SEEDS: Final = (0, 1)
_ROUNDS: Final = 5  # of the search for the rate
_ITERATIONS: Final = 100  # of BSP
NOISE: Final = (2, 16, 64)
ADAPTIVE: Final = "adaptive, quorums"
STRATEGIES: Final[Mapping[str, Mapping[str, Any]]] = {
    ADAPTIVE: {"kind": "adaptive", "stale": False},
    "adaptive, late workers finish": {"kind": "adaptive", "stale": False, "late": "finish"},
    "BSP": {"kind": "bsp"},
    "quorum 12": {"kind": "drop-stragglers", "quorum": 12},
    "quorum 8": {"kind": "drop-stragglers", "quorum": 8},
    "cut-offs, last 5": {"kind": "cutoff", "model": "last-5", "warmup": 5},
    "learned cut-offs, hedge": {"kind": "cutoff", "decision": "hedge"},
}
LIMIT: Final = "run times known beforehand"
_UNLIMITED: Final = ("slow-servers", "slow-network")  # clusters
_OF_TRAINING: Final = ("optimizer", "evaluate", "target", "batch_size")


def worths(
    cell: Cell, strategy: str, until_s: float = SECONDS, seeds: Sequence[int] = SEEDS
) -> list[float]:
    """Return the worth with each noise scale, in parts of all workers' in steps of 0.1 s.

    cell: with the paths of its data, see `suite.with_data`.
    """
    sync = STRATEGIES[strategy]
    if sync["kind"] == "adaptive":
        workers = cell.data["workers"]
        told = [{**sync, "noise_scale": noise / workers} for noise in NOISE]
        return [
            _worth(cell, _gradients(cell, each, until_s, seeds), noise, until_s * len(seeds))
            for each, noise in zip(told, NOISE, strict=True)
        ]
    gradients = _gradients(cell, sync, until_s, seeds)
    return [_worth(cell, gradients, noise, until_s * len(seeds)) for noise in NOISE]


def _gradients(
    cell: Cell, sync: Mapping[str, Any], until_s: float, seeds: Sequence[int]
) -> list[int]:
    """Return the number of gradients that counted on server 0, for each iteration of all runs."""
    found: list[int] = []
    for seed in seeds:
        rows = (
            simulate(_configuration(cell, sync, until_s, seed))
            .trace.select(["event", "shard", "iteration", "outcome"])
            .to_pylist()
        )
        counted = (
            row["iteration"]
            for row in rows
            if (row["event"], row["shard"], row["outcome"]) == ("push", 0, "applied")
        )
        found += Counter(counted).values()
    return found


def _configuration(
    cell: Cell, sync: Mapping[str, Any], until_s: float, seed: int
) -> dict[str, Any]:
    data = {key: value for key, value in cell.data.items() if key not in _OF_TRAINING}
    return data | {
        "task": {"kind": "timing", "parameters": 20_000},
        "sync": dict(sync),
        "seed": seed,
        "stop": {"virtual_time_s": until_s},
    }


def limits(
    cell: Cell, until_s: float = SECONDS, seeds: Sequence[int] = SEEDS
) -> list[float] | None:
    """Return the largest worth that is possible, as `worths`; None: see the head of the module."""
    if cell.cluster in _UNLIMITED:
        return None
    laws = [_run_times(cell, until_s, seed) for seed in seeds]
    beside_s = _beside_s(cell, laws[0], seeds[0])
    return [_limit(cell, laws, noise, beside_s, until_s) for noise in NOISE]


def _beside_s(cell: Cell, law: Callable[[int, float], Times], seed: int) -> float:
    """Return what an iteration of BSP takes besides the longest run time, in s."""
    bsp = _configuration(cell, STRATEGIES["BSP"], SECONDS, seed)
    time_s = simulate({**bsp, "stop": {"iterations": _ITERATIONS}}).summary["virtual_time_s"]
    now_s = 0.0
    for number in range(_ITERATIONS):
        now_s += float(law(number, now_s)[-1])
    return max(0.0, float(time_s) - now_s) / _ITERATIONS


def _run_times(cell: Cell, until_s: float, seed: int) -> Callable[[int, float], Times]:
    """Return a function of iteration and its start in s: the run times of all workers, in s."""
    experiment = experiment_from(_configuration(cell, {"kind": "bsp"}, until_s, seed), cell.name)
    assert experiment.compute is not None
    law = experiment.compute.run_time(seed, experiment.workers, None)
    workers = range(experiment.workers)
    return lambda number, now_s: np.sort([law(n, number, nanoseconds(now_s)) for n in workers])


def _played(
    law: Callable[[int, float], Times],
    until_s: float,
    best: Callable[[Times], int],
    beside_s: float,
) -> list[int]:
    """Return how many gradients each iteration has. best: of the run times, in ascending order."""
    found: list[int] = []
    now_s = 0.0
    while now_s < until_s:
        times = law(len(found), now_s)
        found.append(best(times))
        now_s += float(times[found[-1] - 1]) + beside_s
    return found


def _limit(
    cell: Cell,
    laws: Sequence[Callable[[int, float], Times]],
    noise: float,
    beside_s: float,
    until_s: float,
) -> float:
    """Return the largest worth: that of the rate at which no other choice is worth more."""
    counts = np.arange(1, cell.data["workers"] + 1)
    values = noise * counts / (noise + counts)
    rate = float(values[-1]) / STEP_S  # worth of a second
    for _ in range(_ROUNDS):

        def best(times: Times, price: float = rate) -> int:
            return 1 + int(np.argmax(values - price * (times + beside_s)))

        gradients = [n for law in laws for n in _played(law, until_s, best, beside_s)]
        rate = sum(float(values[n - 1]) for n in gradients) / (until_s * len(laws))
    return _worth(cell, gradients, noise, until_s * len(laws))


def _worth(cell: Cell, gradients: Sequence[int], noise: float, seconds: float) -> float:
    workers = cell.data["workers"]
    whole = noise * workers / (workers + noise) / STEP_S
    return sum(noise * k / (k + noise) for k in gradients) / seconds / whole


def table(clusters: Sequence[str], until_s: float, seeds: Sequence[int]) -> Iterator[str]:
    """Yield the lines of the table, each when its cluster is done."""
    scales = ", ".join(map(str, NOISE))
    yield f"| B = {scales} | {' | '.join(STRATEGIES)} | {LIMIT} |"
    yield f"|---|{'---|' * len(STRATEGIES)}---|"
    for cluster in clusters:
        (cell,) = (with_data(each) for each in cells([f"digits-cnn/{cluster}"]))
        found: list[list[float] | None] = []
        found += [worths(cell, strategy, until_s, seeds) for strategy in STRATEGIES]
        found.append(limits(cell, until_s, seeds))
        shown = ["" if each is None else ", ".join(f"{x:.2f}" for x in each) for each in found]
        yield f"| {cluster} | {' | '.join(shown)} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0; 1 if a run failed, 2 if a file is wrong, 130 after Ctrl-C."""
    parser = described_parser("benchmarks.strategies.worth", __doc__)
    parser.add_argument("--quick", action="store_true", help="two clusters, and 2 s")
    options = parser.parse_args(arguments)
    return exit_code(partial(_carry_out, quick=options.quick), "the lines above are complete")


def _carry_out(*, quick: bool) -> int:
    clusters = ("even", "slow-workers") if quick else (*CLUSTERS, *FURTHER)
    for line in table(clusters, 2.0 if quick else SECONDS, SEEDS[:1] if quick else SEEDS):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
