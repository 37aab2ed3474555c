"""What a checkpoint of a large model costs the throughput of a real run.

A run's speed changes by more than a checkpoint costs, as other programs come and go. So windows
with and without a checkpoint follow each other in one run, in the order A B B A, and each is
compared with its neighbour.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from benchmarks.failures.rows import Row, row
from benchmarks.failures.running import ends_s, large, run

from outpace.engine.control import Control

GOAL = 0.03
_NEVER_S = 1e6


def overhead(
    out: Path,
    say: Callable[[str], object],
    megabytes: float,
    windows: int,
    window_s: float,
    momenta: Sequence[float] = (0.0, 0.9),
) -> list[Row]:
    """Return the share of the throughput that a checkpoint in each window takes, and its size."""
    begin_s = min(10.0, 2 * window_s)
    saving = [number % 4 in (0, 3) for number in range(windows)]
    length_s = begin_s + windows * window_s
    rows = []
    for momentum in momenta:
        optimizer = {"kind": "sgd", "lr": 0.01, "momentum": momentum}
        config = large(
            megabytes,
            optimizer=optimizer,
            checkpoint={"every_s": _NEVER_S},
            stop={"virtual_time_s": length_s + 1},
        )

        def control(control: Control) -> None:
            for number, save in enumerate(saving):
                if save:  # a little later, so that all of it is in the window
                    at_s = begin_s + (number + 0.1) * window_s
                    control.at(at_s, lambda: os.kill(os.getpid(), signal.SIGUSR1))

        folder = out / f"overhead-{momentum}"
        say(f"{folder.name}: {length_s:.0f} s")
        result = run(config, folder, control=control)
        taken = sorted((folder / "checkpoints").iterdir())
        if int(taken[-1].name) < sum(saving):
            raise RuntimeError(f"{folder}: not every checkpoint was taken")
        edges = begin_s + window_s * np.arange(windows + 1)
        done = sum(
            np.interp(edges, ends, np.arange(1, len(ends) + 1)) for ends in ends_s(result, 2)
        )
        rates = np.diff(done) / window_s
        costs = [
            float(1 - rates[a if saving[a] else b] / rates[b if saving[a] else a])
            for a, b in list(pairwise(range(windows)))[::2]
        ]
        kind = "SGD with momentum" if momentum else "plain SGD"
        name = f"a checkpoint of a {megabytes:g} MB model each {window_s:g} s, {kind}"
        rows.append(row(name, costs, unit="%", goal=GOAL, around="95 %"))
        size = sum(file.stat().st_size for file in taken[-1].iterdir()) / 1e6
        rows.append(row(f"size of that checkpoint, {kind}", [size], unit="MB"))
    return rows
