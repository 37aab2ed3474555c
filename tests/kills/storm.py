"""Kill a worker of a real run again and again, whether the last one is back or not.

    python -m tests.kills.storm --families ssp,gossip --every-s 1 --for-s 60

Then the run goes on to its end, and every promise is checked. Exit code 1 if one does not hold; the
folder of that run is kept and named. Not for strategies under which all workers begin again after a
death: the fifth one without a new checkpoint ends their run.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from tests.kills.checking import Broken, check
from tests.kills.command import Command
from tests.kills.family import FAMILIES
from tests.kills.killing import check_nothing_left, is_ready

from outpace.errors import OutpaceError

LIMIT_S: Final = 600.0  # from the last death to the end of the run
ALONE: Final = ("bsp", "ssp", "asp", "cutoff", "hpsgd", "gossip")  # a worker comes back alone


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="tests.kills.storm",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--families", default=",".join(ALONE), help="default: %(default)s")
    parser.add_argument("--every-s", type=float, default=1.0)
    parser.add_argument("--for-s", type=float, default=60.0)
    parser.add_argument("--iterations", type=int, default=1500, help="of each worker of a run")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    options = parser.parse_args(arguments)
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"seed {options.seed}")
    for name in options.families.split(","):
        folder = Path(tempfile.mkdtemp(prefix="storm-"))
        try:
            killed = storm(
                name,
                folder,
                every_s=options.every_s,
                for_s=options.for_s,
                seed=options.seed,
                iterations=options.iterations,
            )
        except (Broken, OutpaceError) as error:
            console.print(f"{name}: {error}\nits folder: {folder}")
            return 1
        console.print(f"{name}: {killed} workers were killed, and every promise held")
    return 0


def storm(
    name: str, folder: Path, *, every_s: float, for_s: float, seed: int, iterations: int
) -> int:
    """Make one run of a family, and return how many workers were killed.

    Args:
        folder: gets the run; must be empty.
        every_s, for_s: how often a worker is killed, and how long.
        iterations: of each worker.

    Raises:
        Broken: naming the promise that did not hold.
    """
    family, draw, killed = FAMILIES[name], random.Random(seed), set[int]()
    command = Command(folder, family.config(iterations))
    try:
        command.start()
        is_ready(command, family)
        until = time.monotonic() + for_s
        while time.monotonic() < until and command.exit_code is None:
            there = command.processes()
            alive = sorted(pid for each, pid in there.items() if each.startswith("worker"))
            if left := [pid for pid in alive if pid not in killed]:
                victim = draw.choice(left)
                with contextlib.suppress(ProcessLookupError):  # it has ended
                    os.kill(victim, signal.SIGKILL)
                    killed.add(victim)
            time.sleep(every_s)
        until = time.monotonic() + LIMIT_S
        while command.exit_code is None and time.monotonic() < until:
            time.sleep(0.1)
        if command.exit_code != 0:
            raise Broken(f"the command ended with {command.exit_code}: {command.said}")
        check(command.out, family, iterations, {"worker": len(killed)})
        check_nothing_left(command)
    finally:
        command.end()
    shutil.rmtree(folder)
    return len(killed)


if __name__ == "__main__":
    sys.exit(main())
