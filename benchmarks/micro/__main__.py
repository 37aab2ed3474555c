"""Measure the speed of all parts, or of some; exit with 1 if a goal is missed."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from benchmarks.micro import (
    collectives,
    executors,
    gradients,
    harness,
    kernel,
    messages,
    real,
    scale,
    shard,
)

PARTS = {
    "kernel": kernel,
    "gradients": gradients,
    "executors": executors,
    "shard": shard,
    "messages": messages,
    "scale": scale,
    "real": real,
    "collectives": collectives,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.micro", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"{', '.join(PARTS)}; default: all")
    parser.add_argument("--quick", action="store_true", help="a minute in all, less steady")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the measurements there")
    options = parser.parse_args(arguments)
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; known: {', '.join(PARTS)}")
    torch.set_num_threads(1)
    measured: list[harness.Measurement] = []
    gc.freeze()  # the collections before measurements leave out what is there already
    try:
        for name, part in PARTS.items():
            if name in (options.parts or PARTS):
                print(f"measuring {name} ...", file=sys.stderr, flush=True)
                measured += part.measure(options.quick)
                if options.json:
                    harness.write(measured, options.json)
    finally:
        gc.unfreeze()
    harness.show(measured)
    missed = [m.name for m in measured if m.met is False]
    if missed:
        print("missed: " + "; ".join(missed), file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
