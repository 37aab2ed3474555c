"""Strategies without servers, for real: two workers, 25 MB of parameters, Gloo over 127.0.0.1.

A step computes for 60 ms, asleep, as on a device of its own. HPSGD, with all-reduces stretched to
180 ms, against workers that never synchronise; SSGD against DDP.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.micro.harness import Measurement, in_turn, ratio

from outpace.experiment.running import run

SCRIPT = Path(__file__).parent / "steps.py"
ELEMENTS, COMPUTE_MS, REDUCE_S = 6_250_000, 60, 0.18
NETWORK = {"bandwidth_bytes_per_s": 4 * ELEMENTS / REDUCE_S, "stretch": True}
LIMIT_S = 120.0


def measure(quick: bool) -> list[Measurement]:
    repetitions, steps = (2, 24) if quick else (5, 40)
    alone, overlapped, synchronous, ddp = in_turn(
        [
            partial(mean_step, "psgd", steps),
            partial(mean_step, "hpsgd", steps),
            lambda: statistics.median(steps_of({"kind": "ssgd"}, steps)),
            lambda: statistics.median(steps_of_ddp(steps)),
        ],
        repetitions,
    )
    return [
        ratio("step rate of HPSGD / of PSGD", alone, overlapped, goal=0.93, note=milliseconds),
        ratio(
            "step of SSGD / of DDP", synchronous, ddp, goal=1.05, at_least=False, note=milliseconds
        ),
    ]


def milliseconds(above: float, below: float) -> str:
    return f"{1e3 * above:.1f} and {1e3 * below:.1f} ms"


def mean_step(kind: str, steps: int) -> float:
    """With all-reduces that are stretched, if there are any (s)."""
    return statistics.mean(steps_of({"kind": kind}, steps, network=NETWORK))


def steps_of(sync: dict[str, Any], steps: int, **changes: Any) -> list[float]:
    """Of the slower one of two workers (s)."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = [str(ELEMENTS), str(steps), str(COMPUTE_MS), folder, "outpace"]
        task = {"kind": "script", "path": str(SCRIPT), "arguments": arguments}
        run({"task": task, "workers": 2, "sync": sync, **changes})
        return slower_in(Path(folder))


def steps_of_ddp(steps: int) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        arguments = [str(ELEMENTS), str(steps), str(COMPUTE_MS), folder, "ddp"]
        command = [sys.executable, str(SCRIPT), *arguments]
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        ranks = [subprocess.Popen([*command, str(rank)], env=environment) for rank in range(2)]
        try:
            codes = [rank.wait(LIMIT_S) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
        if any(codes):
            raise RuntimeError(f"DDP's ranks ended with exit codes {codes}")
        return slower_in(Path(folder))


def slower_in(folder: Path) -> list[float]:
    found = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]
    return max(found, key=sum)
