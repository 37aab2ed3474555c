"""Kill processes of real runs, one after the other, and check every promise after each run.

    python -m tests.kills --failures 2000                       # hours
    python -m tests.kills --failures 5 --families bsp --roles server --signals STOP

Workers, servers and the coordinator (the command, which is then resumed) are killed with SIGKILL,
or stopped with SIGSTOP, 2 s after the run has recovered from the last failure. Exit code 1 if a
promise does not hold; the folder of that run is kept and named. With `--copies 100` the blocks of
tasks are so large that they go through memory that the processes share.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
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
    console, tally = Console(stderr=True), Tally()
    console.print(f"seed {options.seed}")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console) as bars:
        bar = bars.add_task("failures", total=options.failures)
        number = 0
        while tally.failures.total() < options.failures:
            draw = random.Random(f"{options.seed} {number}")
            wanted = [
                (draw.choice(roles), draw.choice(signals))
                for _ in range(options.failures - tally.failures.total())
            ]
            folder = Path(tempfile.mkdtemp(prefix="kills-"))
            name = families[number % len(families)]
            number += 1

            def said(text: str) -> None:
                bars.update(bar, completed=tally.failures.total(), description=text)

            try:
                attack(
                    name,
                    folder,
                    wanted,
                    seed=draw.getrandbits(32),
                    tally=tally,
                    iterations=options.iterations,
                    copies=options.copies,
                    said=said,
                )
            except (Broken, OutpaceError) as error:
                console.print(f"[red]{name}, run {number}:[/] {error}", highlight=False)
                console.print(f"its folder: {folder}", highlight=False)
                return 1
            bars.update(bar, completed=tally.failures.total())
            if not console.is_terminal:
                console.print(f"{name}, run {number}: {tally.failures.total()} failures so far")
    print_tally(tally, Console())
    return 0


def print_tally(tally: Tally, console: Console) -> None:
    """Print how many failures there were, and how long the runs took to continue."""
    table = Table("family", "role", "signal", "failures")
    for (family, role, number), count in sorted(tally.failures.items()):
        table.add_row(family, role, f"SIG{number}", str(count))
    console.print(table)
    times = Table("role", "signal", "median until all train again (s)", "longest (s)")
    for (role, number), seconds in sorted(tally.recovery_s.items()):
        median = statistics.median(seconds)
        times.add_row(role, f"SIG{number}", f"{median:.1f}", f"{max(seconds):.1f}")
    console.print(times)
    console.print(f"{tally.failures.total()} failures in {tally.runs} runs: every promise held")


if __name__ == "__main__":
    sys.exit(main())
