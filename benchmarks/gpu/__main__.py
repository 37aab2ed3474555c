"""Try Outpace on a GPU: is it right, and how long is a step?

    python -m benchmarks.gpu --quick --json gpu.json  # at most 3 minutes
    python -m benchmarks.gpu                          # at most 5 minutes

gradients: gradients of workers on the GPU, against the same script without a run.
steps: seconds of a step of 25 MB of parameters, by strategy; two workers share the GPU.
virtual: gradients in virtual time computed on the GPU (`executor.device`), against the CPU.
time: of this command so far.

Exit code 1 if a goal is missed, 2 if there is no GPU.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import torch
from benchmarks.gpu.measuring import differences, steps, virtual
from benchmarks.parts import Benchmark
from benchmarks.rows import Row, row

from outpace.record.folder import free_folder

RUNS = Path("runs/gpu")
DEVICE: Final = "cuda:0"
QUICK_S, WHOLE_S = 180.0, 300.0
_BEGAN: Final = time.monotonic()


def _measured(part: str, say: Callable[[str], object], quick: bool) -> list[Row]:
    if part == "time":
        goal = QUICK_S if quick else WHOLE_S
        return [
            row(
                "this command, without its imports",
                [time.monotonic() - _BEGAN],
                unit="s",
                goal=goal,
            )
        ]
    if part == "virtual":
        return virtual(DEVICE, say, 6 if quick else 30)
    with free_folder(RUNS, part) as out:
        if part == "gradients":
            return differences(out, DEVICE, say)
        return steps(out, DEVICE, say, *((20, 1250) if quick else (100, 1250)))


def _missing() -> str:
    return "" if torch.cuda.is_available() else "there is no GPU that torch can use"


def _about() -> dict[str, str]:
    return {
        "gpu": torch.cuda.get_device_name(DEVICE),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


BENCHMARK = Benchmark(
    "gpu",
    __doc__ or "",
    ("gradients", "steps", "virtual", "time"),
    _measured,
    missing=_missing,
    about=_about,
)


if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
