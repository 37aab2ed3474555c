"""The cost of a checkpoint of a large model in a real run that keeps all processors busy.

Short windows with and without a checkpoint follow each other in one run, in the order A B B A, and
each is compared with its neighbour.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from benchmarks.failures.running import large, run
from benchmarks.failures.windows import CORES, Windows, cost_rows
from benchmarks.rows import Row, row

from outpace.engine.control import Control

GOAL: Final = 0.03
EVERY_S: Final = 10.0  # of the goal
_NEVER_S: Final = 1e6
_MOMENTA: Final = {"plain SGD": 0.0, "SGD with momentum": 0.9}


def overhead(
    out: Path,
    say: Callable[[str], object],
    megabytes: float,
    windows: int,
    window_s: float,
    kinds: Sequence[str] = tuple(_MOMENTA),
) -> list[Row]:
    """Return the shares of iterations and of processor time that a checkpoint each 10 s costs.

    Also its size. Each checkpoint is asked for when its window has begun, so that all of it is in
    the window.
    """
    saving = [number % 4 in (0, 3) for number in range(windows)]
    edges_s = [(4 + number) * window_s for number in range(windows + 1)]
    rows = []
    for kind in kinds:
        folder = out / kind.replace(" ", "-")
        say(f"{folder.name}: {edges_s[-1]:.0f} s")
        windowed = Windows(edges_s)

        def control(given: Control, windowed: Windows = windowed) -> None:
            windowed.control(given)
            for edge_s, saves in zip(edges_s, saving, strict=False):
                if saves:
                    given.at(edge_s + 0.05 * window_s, _take_checkpoint)

        config = large(
            megabytes,
            optimizer={"kind": "sgd", "lr": 0.01, "momentum": _MOMENTA[kind]},
            checkpoint={"every_s": _NEVER_S},
            stop={"virtual_time_s": edges_s[-1] + 1},
        )
        result = run(config, folder, control=control, watch=windowed.watch)
        taken = sorted((folder / "checkpoints").iterdir())
        if int(taken[-1].name) < sum(saving):
            raise RuntimeError(f"{folder}: not every checkpoint was taken")
        rates, busy = windowed.measured(result, config["workers"])
        fewer, more = [], []
        for first in range(0, windows, 2):
            a, b = (first, first + 1) if saving[first] else (first + 1, first)
            share = window_s / EVERY_S  # of the time between checkpoints
            fewer.append(share * (1 - float(rates[a] / rates[b])))
            more.append(share * float(busy[a] - busy[b] * rates[a] / rates[b]) / CORES)
        name = f"a checkpoint of a {megabytes:g} MB model each {EVERY_S:g} s, {kind}"
        rows += cost_rows(name, fewer, more, (GOAL, GOAL))
        size = sum(file.stat().st_size for file in taken[-1].iterdir()) / 1e6
        rows.append(row(f"size of that checkpoint, {kind}", [size], unit="MB"))
    return rows


def _take_checkpoint() -> None:
    os.kill(os.getpid(), signal.SIGUSR1)
