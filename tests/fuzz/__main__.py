"""Gives random and damaged messages to all their receivers. `python -m tests.fuzz --help`."""

import argparse
import sys
import time

from tests.fuzz.machines import run

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--messages", type=int, default=1_000_000)
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()
started = time.perf_counter()
for what, count in sorted(run(options.messages, options.seed).items()):
    sys.stdout.write(f"{count:10,} {what}\n")
sys.stdout.write(f"{options.messages:10,} in {time.perf_counter() - started:.0f} s\n")
