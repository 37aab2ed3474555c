"""How much the gradients of an iteration are worth in a second, without training.

    python -m benchmarks.strategies.worth          # a table: some minutes of processor time
    python -m benchmarks.strategies.worth --quick  # two clusters, 2 s of virtual time

The clusters of the suite in virtual time, without computing gradients. An iteration in which k
gradients counted is worth B·k / (k + B), where B is the gradient noise scale, in gradients of one
worker. The table has the worth in a second, in parts of that of all workers' gradients in each
0.1 s, the mean time of a step. `adaptive` is told B (`noise_scale`). This tells rules apart that
times to a target do not: over seeds those differ by 10 to 15 %.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from benchmarks.strategies.command import described_parser, exit_code
from benchmarks.strategies.suite import CLUSTERS, FURTHER, Cell, cells, with_data

from outpace.experiment.running import simulate

STEP_S: Final = 0.1
SECONDS: Final = 40.0
SEEDS: Final = (0, 1)
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
        data = {key: value for key, value in cell.data.items() if key not in _OF_TRAINING}
        data |= {
            "task": {"kind": "timing", "parameters": 20_000},
            "sync": dict(sync),
            "seed": seed,
            "stop": {"virtual_time_s": until_s},
        }
        rows = simulate(data).trace.select(["event", "shard", "iteration", "outcome"]).to_pylist()
        counted = (
            row["iteration"]
            for row in rows
            if (row["event"], row["shard"], row["outcome"]) == ("push", 0, "applied")
        )
        found += Counter(counted).values()
    return found


def _worth(cell: Cell, gradients: Sequence[int], noise: float, seconds: float) -> float:
    workers = cell.data["workers"]
    whole = noise * workers / (workers + noise) / STEP_S
    return sum(noise * k / (k + noise) for k in gradients) / seconds / whole


def table(clusters: Sequence[str], until_s: float, seeds: Sequence[int]) -> Iterator[str]:
    """Yield the lines of the table, each when its cluster is done."""
    scales = ", ".join(map(str, NOISE))
    yield f"| B = {scales} | {' | '.join(STRATEGIES)} |"
    yield f"|---|{'---|' * len(STRATEGIES)}"
    for cluster in clusters:
        (cell,) = (with_data(each) for each in cells([f"digits-cnn/{cluster}"]))
        found = [worths(cell, strategy, until_s, seeds) for strategy in STRATEGIES]
        shown = [", ".join(f"{worth:.2f}" for worth in each) for each in found]
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
