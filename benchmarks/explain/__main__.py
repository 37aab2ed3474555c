"""Measure how well and how fast slow workers are found, and how true promised gains are.

    python -m benchmarks.explain               # all parts
    python -m benchmarks.explain names speed --record

names: generated clusters of 2 to 64 workers, with and without workers 1.2 times as slow.
servers: generated clusters in virtual time, with and without a slow server or link.
speed: the cost of looking for slow workers in a real run, in its coordinator's process.
repairs: real runs with a slow worker, and reruns without, against the promised time.

Exit code 1 if a goal is missed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.explain.clusters import names
from benchmarks.explain.repairs import repairs
from benchmarks.explain.servers import servers
from benchmarks.explain.speed import speed
from benchmarks.parts import Benchmark, Cells

from outpace.record.folder import free_folder

RUNS = Path("runs/explain")
PARTS = ("names", "servers", "speed", "repairs")


def _measured(part: str, say: Callable[[str], object], quick: bool) -> list[Cells]:
    if part == "names":
        return names(3 if quick else 100, quick=quick)
    if part == "servers":
        return servers(1 if quick else 10, quick=quick)
    if part == "speed":
        return speed(*(([4], 200, 1) if quick else ([4, 16, 64], 2000, 5)))
    with free_folder(RUNS, "repairs") as out:
        return repairs(out, say, *((25, 0.04, 1) if quick else ()))


BENCHMARK = Benchmark("explain", __doc__ or "", PARTS, _measured)


if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
