"""Kill processes of real runs, one after the other, and check every promise after each run.

    python -m tests.kills --failures 2000                       # hours
    python -m tests.kills --failures 5 --families bsp --roles server --signals STOP

Workers, servers and the coordinator (the command, which is then resumed) are killed with SIGKILL,
or stopped with SIGSTOP, 2 s after the run has recovered from the last failure. Exit code 1 if a
promise does not hold; the folder of that run is kept and named. With `--copies 100` the blocks of
tasks are so large that processes exchange them in shared memory.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.kills.checking import Broken
from tests.kills.family import FAMILIES
from tests.kills.killing import ROLES, SIGNALS, Tally, attack

from outpace.errors import OutpaceError


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="tests.kills",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--failures", type=int, default=100)
    parser.add_argument("--families", default=",".join(FAMILIES), help="default: %(default)s")
    parser.add_argument("--roles", default=",".join(ROLES), help="default: %(default)s")
    parser.add_argument("--signals", default="KILL", help=f"of {','.join(SIGNALS)}")
    parser.add_argument("--iterations", type=int, default=600, help="of each worker of a run")
    parser.add_argument("--copies", type=int, default=1, help="of each parameter of a task")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    options = parser.parse_args(arguments)
    families, roles, signals = (
        getattr(options, each).split(",") for each in ("families", "roles", "signals")
    )
    tally, number = Tally(), 0
    note(f"seed {options.seed}")
    while (left := options.failures - tally.failures.total()) > 0:
        draw = random.Random(f"{options.seed} {number}")
        wanted = [(draw.choice(roles), draw.choice(signals)) for _ in range(left)]
        folder = Path(tempfile.mkdtemp(prefix="kills-"))
        name = families[number % len(families)]
        number += 1
        how = {"iterations": options.iterations, "copies": options.copies}
        try:
            attack(name, folder, wanted, seed=draw.getrandbits(32), tally=tally, **how)
        except (Broken, OutpaceError) as error:
            note(f"{name}, run {number}: {error}\nits folder: {folder}")
            return 1
        note(f"{name}, run {number}: {tally.failures.total()} failures so far")
    for (family, role, signal), count in sorted(tally.failures.items()):
        note(f"{family:14} {role:12} SIG{signal:5} {count:5} failures")
    for (role, signal), seconds in sorted(tally.recovery_s.items()):
        median = statistics.median(seconds)
        times = f"{median:.1f} s (median), at most {max(seconds):.1f}"
        note(f"{role:12} SIG{signal:5} all train again after {times}")
    note(f"{tally.failures.total()} failures in {tally.runs} runs: every promise held")
    return 0


def note(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
