"""Run tests with every number of torch threads and every set of kernels of this processor.

    python -m tests.sweep_kernels [--square] [PATH ...]

Not a part of `make test`: it repeats the tests nine times. With `--square` it repeats them three
times: each number of threads and each set of kernels comes once. Sums round differently with
another number of threads and with other kernels, so tests of equal bits are its business. Without
paths it runs the tests whose text speaks of digests or bits.
"""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import cycle, product
from pathlib import Path
from typing import Final

import torch

THREADS: Final = ("", "1", "2")  # OMP_NUM_THREADS; empty: not set
KERNELS: Final = ("default", "avx2", "avx512")  # ATEN_CPU_CAPABILITY, from the oldest on
WORDS: Final = ("digest", "bitwise", "same bits", "torch.equal")


def kernels() -> tuple[str, ...]:
    """Return the kernels that this processor has."""
    best = torch.backends.cpu.get_cpu_capability().lower()
    return KERNELS[: KERNELS.index(best) + 1] if best in KERNELS else ("default",)


def candidates() -> list[str]:
    """Return the test files that compare bits, by their words."""
    files = sorted(Path(__file__).parent.rglob("test_*.py"))
    return [str(file) for file in files if any(word in file.read_text() for word in WORDS)]


def main() -> int:
    """Return 1 if a test fails with any setting."""
    arguments = sys.argv[1:]
    paths, failed = [each for each in arguments if each != "--square"] or candidates(), False
    square = zip(THREADS, cycle(kernels()), strict=False)
    for threads, capability in square if "--square" in arguments else product(THREADS, kernels()):
        environment = {**os.environ, "ATEN_CPU_CAPABILITY": capability}
        environment.pop("OMP_NUM_THREADS", None)
        if threads:
            environment["OMP_NUM_THREADS"] = threads
        command = [sys.executable, "-m", "pytest", "-q", *paths]
        done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
        failed |= bool(done.returncode)
        name = f"OMP_NUM_THREADS={threads or '-'} ATEN_CPU_CAPABILITY={capability}"
        lines = done.stdout.splitlines()
        wrong = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
        print(f"{name}: {lines[-1] if lines else done.stderr}", *wrong, sep="\n  ", flush=True)  # noqa: T201
    return failed


if __name__ == "__main__":
    sys.exit(main())
