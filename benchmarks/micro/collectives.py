"""Scripts for real against DDP: two workers, 25 MB of parameters, over 127.0.0.1.

A step sleeps for 60 ms, as if it computed on a separate device. HPSGD, with all-reduces stretched
to 180 ms, is compared with workers that never synchronize (PSGD), and SSGD with DDP. A script with
DDP is run in Outpace, which carries out its collectives, and compared with DDP on Gloo alone. BSP
with two servers is compared with DDP with steps that compute nothing.
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

from benchmarks.rows import Row, in_turn, ratio, times_note

from outpace.experiment.running import run

SCRIPT = Path(__file__).parent / "steps.py"
ALTERNATING = Path(__file__).parent / "alternating.py"
COMPUTE_MS, REDUCE_S = 60, 0.18
SSGD = {"kind": "ssgd"}
BSP = {"kind": "bsp"}
LIMIT_S = 120.0


def measure(quick: bool) -> list[Row]:
    repetitions, steps, elements = (1, 4, 62_500) if quick else (5, 40, 6_250_000)
    alone, overlapped, synchronous, ddp = in_turn(
        [
            partial(_mean_step, elements, "psgd", steps),
            partial(_mean_step, elements, "hpsgd", steps),
            lambda: statistics.median(_steps(elements, SSGD, steps)),
            lambda: statistics.median(_steps_of_ddp(elements, steps)),
        ],
        repetitions,
    )
    over_tcp, in_memory, nothing_computed = in_turn(
        [
            partial(_median_of_bsp, elements, steps, shared_memory=False),
            partial(_median_of_bsp, elements, steps, shared_memory=True),
            lambda: statistics.median(_steps_of_ddp(elements, steps, compute_ms=0)),
        ],
        repetitions,
    )
    pairs = [_steps_in_turn(elements, steps) for _ in range(repetitions)]
    followed, plain = zip(*pairs, strict=True)
    at_most = {
        "step of SSGD / of DDP": (synchronous, ddp, 1.05),
        "step of DDP in Outpace / of DDP": (followed, plain, 1.05),
        "step of BSP, 2 servers / of DDP": (over_tcp, nothing_computed, 1.5),
        "step of BSP, 2 servers, shared memory / of DDP": (in_memory, nothing_computed, 0.55),
    }
    what = "step rate of HPSGD / of PSGD"
    return [
        ratio(what, alone, overlapped, goal=0.93, at_least=True, note=times_note),
        *(
            ratio(what, above, below, goal=goal, note=times_note)
            for what, (above, below, goal) in at_most.items()
        ),
    ]


def _median_of_bsp(elements: int, steps: int, *, shared_memory: bool) -> float:
    """Return the median seconds of a step that computes nothing."""
    settings = {"servers": 2, "shared_memory": shared_memory}
    return statistics.median(_steps(elements, BSP, steps, compute_ms=0, **settings))


def _mean_step(elements: int, kind: str, steps: int) -> float:
    """Return the mean seconds of a step with stretched all-reduces."""
    network = {"bandwidth_bytes_per_s": 4 * elements / REDUCE_S, "stretch": True}
    return statistics.mean(_steps(elements, {"kind": kind}, steps, network=network))


def _steps(
    elements: int, sync: dict[str, Any], steps: int, compute_ms: float = COMPUTE_MS, **changes: Any
) -> list[float]:
    """Return the seconds of each step of the slower one of two workers."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = _arguments(elements, steps, folder, compute_ms)
        task = {"kind": "script", "path": str(SCRIPT), "arguments": arguments}
        run({"task": task, "workers": 2, "sync": sync, **changes})
        return _slower(Path(folder))


def _steps_in_turn(elements: int, steps: int) -> tuple[float, float]:
    """Return the median seconds of the steps of DDP in Outpace and on Gloo alone."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = _arguments(elements, steps, folder)
        task = {"kind": "script", "path": str(ALTERNATING), "arguments": arguments}
        run({"task": task, "workers": 2, "sync": SSGD}, log=lambda _: None)
        followed, alone = json.loads((Path(folder) / "steps.json").read_text())
    return statistics.median(followed), statistics.median(alone)


def _steps_of_ddp(elements: int, steps: int, compute_ms: float = COMPUTE_MS) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        arguments = _arguments(elements, steps, folder, compute_ms)
        command = [sys.executable, str(SCRIPT), *arguments, "--ddp-rank"]
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        ranks = [subprocess.Popen([*command, str(rank)], env=environment) for rank in range(2)]
        try:
            codes = [rank.wait(LIMIT_S) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
        if any(codes):
            raise RuntimeError(f"the ranks of DDP ended with exit codes {codes}")
        return _slower(Path(folder))


def _arguments(elements: int, steps: int, folder: str, compute_ms: float = COMPUTE_MS) -> list[str]:
    return [str(elements), str(steps), str(compute_ms), folder]


def _slower(folder: Path) -> list[float]:
    found = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]
    return max(found, key=sum)
