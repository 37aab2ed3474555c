"""Measure how well slow workers, servers and links are found.

    python -m benchmarks.explain               # all parts
    python -m benchmarks.explain names --record

names: generated clusters of 2 to 64 workers, with and without workers 1.2 times as slow.
servers: generated clusters in virtual time, with and without a slow server or link.

Exit code 1 if a goal is missed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from benchmarks.explain.clusters import names
from benchmarks.explain.servers import servers
from benchmarks.parts import Benchmark, Cells

PARTS = ("names", "servers")


def _measured(part: str, say: Callable[[str], object], quick: bool) -> list[Cells]:
    if part == "names":
        return names(3 if quick else 100, quick=quick)
    return servers(1 if quick else 10, quick=quick)


BENCHMARK = Benchmark("explain", __doc__ or "", PARTS, _measured)


if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
