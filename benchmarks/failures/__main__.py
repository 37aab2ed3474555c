"""Measure what failures and checkpoints cost, and how soon a run continues.

    python -m benchmarks.failures                       # all parts, half an hour
    python -m benchmarks.failures recovery --record

goodput: useful gradients while workers and servers are killed, compared with a run without kills.
goodput-hpsgd: the same without servers.
goodput-virtual: in virtual time, with one failure in ten minutes.
recovery: seconds from the kill of a worker or a server until it is replaced.

Exit code 1 if a goal is missed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.failures.goodput import goodput
from benchmarks.failures.recovery import recovery
from benchmarks.failures.virtual import goodput as goodput_in_virtual_time
from benchmarks.parts import Benchmark
from benchmarks.rows import Row

from outpace.record.folder import free_folder

RUNS = Path("runs/failures")
PARTS: Final = ("goodput", "goodput-hpsgd", "goodput-virtual", "recovery")


def _measured(part: str, say: Callable[[str], object], quick: bool) -> list[Row]:
    if part == "goodput-virtual":
        return goodput_in_virtual_time(*((600.0, 1) if quick else (7200.0, 5)))
    with free_folder(RUNS, part) as out:
        if part == "goodput":
            return goodput(out, say, *((1, 4.0, ["worker"]) if quick else (3, 60.0)))
        if part == "goodput-hpsgd":
            lengths = (1, 8.0) if quick else (3, 60.0)
            return goodput(out, say, *lengths, ["worker"], "HPSGD")
        return recovery(out, say, *((1.0, 1, ["server"], 0.2) if quick else (100.0, 5)))


BENCHMARK = Benchmark("failures", __doc__ or "", PARTS, _measured)


if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
