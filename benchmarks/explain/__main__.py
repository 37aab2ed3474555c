"""Measure how well slow workers are found.

    python -m benchmarks.explain               # all parts
    python -m benchmarks.explain names --record

names: generated clusters of 2 to 64 workers, with and without workers 1.2 times as slow.

Exit code 1 if a goal is missed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from benchmarks.explain.clusters import names
from benchmarks.parts import Benchmark, Cells

PARTS = ("names",)


def _measured(part: str, say: Callable[[str], object], quick: bool) -> list[Cells]:
    return names(3 if quick else 100, quick=quick)


BENCHMARK = Benchmark("explain", __doc__ or "", PARTS, _measured)


if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
