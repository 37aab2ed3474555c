"""Measure the speed of all parts, or of some; exit with 1 if a goal is missed.

kernel: the kernel and the network against SimPy. gradients: a simulated run against a plain loop.
messages, scale: host time per simulated message, and memory. real: runs of the command, against
copies of memory and `import torch`. collectives: steps of scripts against DDP.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from benchmarks.micro import collectives, gradients, kernel, messages, real, scale
from benchmarks.rows import Row, markdown

PARTS = {
    "kernel": kernel,
    "gradients": gradients,
    "messages": messages,
    "scale": scale,
    "real": real,
    "collectives": collectives,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0, or 1 if a goal is missed."""
    parser = argparse.ArgumentParser(prog="benchmarks.micro", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"{', '.join(PARTS)}; default: all")
    parser.add_argument("--quick", action="store_true", help="a minute in all, less steady")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there")
    options = parser.parse_args(arguments)
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; known: {', '.join(PARTS)}")
    torch.set_num_threads(1)
    rows: list[Row] = []
    gc.freeze()  # garbage collections before measurements skip the objects that exist already
    try:
        for name, part in PARTS.items():
            if name in (options.parts or PARTS):
                print(f"measuring {name} ...", file=sys.stderr, flush=True)
                rows += part.measure(options.quick)
                if options.json:
                    write(rows, options.json)
    finally:
        gc.unfreeze()
    print("\n".join(markdown([asdict(each) for each in rows])))
    return int(not all(each.met for each in rows))


def write(rows: Sequence[Row], path: Path) -> None:
    """Write name, median, low, high, goal and met (null without a goal) of each, as JSON."""
    plain = [
        {
            "name": each.what,
            **{key: getattr(each, key) for key in ("median", "low", "high", "goal")},
            "met": None if each.goal is None else each.met,
        }
        for each in rows
    ]
    path.write_text(json.dumps(plain, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
