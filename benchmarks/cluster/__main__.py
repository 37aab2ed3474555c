"""Measure what a Ray cluster costs a run, on one machine.

    python -m benchmarks.cluster                # all parts, ten minutes
    python -m benchmarks.cluster start --record

start: seconds until a run on Ray trains, beside an empty actor of Ray.
steady: iterations and processor time beside the local launcher, in pairs.

Exit code 1 if a goal is missed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.cluster.start import start
from benchmarks.cluster.steady import steady
from benchmarks.parts import Benchmark
from benchmarks.rows import Row

from outpace.record.folder import free_folder

RUNS = Path("runs/cluster")
PARTS: Final = ("start", "steady")


def _measured(part: str, say: Callable[[str], object], quick: bool) -> list[Row]:
    with free_folder(RUNS, part) as out:
        if part == "start":
            return start(out, say, 1 if quick else 5)
        return steady(out, say, *((1, 0.5, [0.1]) if quick else (6, 12.0, [0.1, 100.0])))


BENCHMARK = Benchmark("cluster", __doc__ or "", PARTS, _measured)


if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
