"""Measure the speed of all parts, or of some, as ratios to peers; exit with 1 if a goal is missed.

kernel: the kernel and the network against SimPy. gradients: a simulated run against a plain loop.
messages, scale: host time per simulated message, and memory. real: runs of the command, against
copies of memory and `import torch`. collectives: steps of scripts against DDP.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Final

import torch
from benchmarks.micro import collectives, gradients, kernel, messages, real, scale
from benchmarks.parts import Benchmark
from benchmarks.rows import Row

PARTS: Final[dict[str, Callable[[bool], list[Row]]]] = {
    "kernel": kernel.measure,
    "gradients": gradients.measure,
    "messages": messages.measure,
    "scale": scale.measure,
    "real": real.measure,
    "collectives": collectives.measure,
}


def _measured(part: str, say: Callable[[str], object], quick: bool) -> list[Row]:
    say(f"measuring {part} ...")
    torch.set_num_threads(1)
    return PARTS[part](quick)


BENCHMARK = Benchmark("micro", __doc__ or "", tuple(PARTS), _measured)


if __name__ == "__main__":
    gc.freeze()  # garbage collections before measurements skip the objects that exist already
    sys.exit(BENCHMARK.main())
