"""The cost of a checkpoint of a large model in a real run that keeps all processors busy.

A run's speed changes by more than a checkpoint costs, as other programs come and go. So short
windows with and without a checkpoint follow each other in one run, in the order A B B A, and each
is compared with its neighbour. Two quantities are compared: iterations, and the processor time that
all processes of the run need for as many iterations, which other programs change less.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.failures.rows import Row, row
from benchmarks.failures.running import Floats, ends_s, large, processor_s, run

import outpace
from outpace.engine.control import Control
from outpace.real.process.local import LocalLauncher
from outpace.real.run import RealRun

GOAL = 0.03
EVERY_S = 10.0  # of the goal
_NEVER_S = 1e6


def overhead(
    out: Path,
    say: Callable[[str], object],
    megabytes: float,
    windows: int,
    window_s: float,
    momenta: Sequence[float] = (0.0, 0.9),
    *,
    copies: bool = False,
) -> list[Row]:
    """Return the shares of iterations and of processor time that a checkpoint each 10 s costs.

    Also its size. Each checkpoint is asked for when its window has begun, so that all of it is in
    the window.

    copies: True if the parts are sent to the coordinator, which writes them.
    """
    saving = [number % 4 in (0, 3) for number in range(windows)]
    rows = []
    for momentum in momenta:
        folder = out / f"overhead-{momentum}{'-copied' if copies else ''}"
        windowed = _Windows(saving, window_s)
        say(f"{folder.name}: {windowed.end_s:.0f} s")
        config = large(
            megabytes,
            optimizer={"kind": "sgd", "lr": 0.01, "momentum": momentum},
            checkpoint={"every_s": _NEVER_S},
            stop={"virtual_time_s": windowed.end_s + 1},
        )
        result = run(config, folder, control=windowed.control, watch=windowed.watch, copies=copies)
        taken = sorted((folder / "checkpoints").iterdir())
        if int(taken[-1].name) < sum(saving):
            raise RuntimeError(f"{folder}: not every checkpoint was taken")
        rates, busy = windowed.measured(result)
        kind = "SGD with momentum" if momentum else "plain SGD"
        kind += ", copied" if copies else ""
        name = f"a checkpoint of a {megabytes:g} MB model each {EVERY_S:g} s, {kind}"
        fewer = [1 - float(a / b) for a, b in _pairs(rates, saving)]
        more = [
            float(a[0] - b[0] * a[1] / b[1]) * window_s
            for a, b in _pairs(np.stack([busy, rates], 1), saving)
        ]
        lost = [cost * window_s / EVERY_S for cost in fewer]
        rows.append(row(f"{name}: iterations", lost, unit="%", goal=GOAL, around="95 %"))
        cores = os.cpu_count() or 1
        shares = [cost / cores / EVERY_S for cost in more]
        what = f"{name}: time of {cores} processors"
        rows.append(row(what, shares, unit="%", goal=GOAL, around="95 %"))
        size = sum(file.stat().st_size for file in taken[-1].iterdir()) / 1e6
        rows.append(row(f"size of that checkpoint, {kind}", [size], unit="MB"))
    return rows


def _pairs(values: Floats, saving: Sequence[bool]) -> list[tuple[Any, Any]]:
    """Return the values of each two windows, of the one with a checkpoint first."""
    each = list(pairwise(range(len(values))))[::2]
    return [(values[a if saving[a] else b], values[b if saving[a] else a]) for a, b in each]


class _Windows:
    """The windows of one run: takes the checkpoints, and reads the processor time at the edges."""

    def __init__(self, saving: Sequence[bool], window_s: float) -> None:
        self._saving, self._window_s = saving, window_s
        self._begin_s = 4 * window_s
        self._run: RealRun | None = None
        self._edges: list[tuple[float, float]] = []  # time of the run, processor time

    @property
    def end_s(self) -> float:
        return self._begin_s + len(self._saving) * self._window_s

    def watch(self, run: RealRun) -> None:
        self._run = run

    def control(self, control: Control) -> None:
        for number in range(len(self._saving) + 1):
            at_s = self._begin_s + number * self._window_s
            control.at(at_s, self._note)
            if number < len(self._saving) and self._saving[number]:
                later_s = at_s + 0.05 * self._window_s
                control.at(later_s, lambda: os.kill(os.getpid(), signal.SIGUSR1))

    def _note(self) -> None:
        assert self._run is not None
        launcher = self._run.launcher
        assert isinstance(launcher, LocalLauncher)
        now_s = self._run.coordinator.clock.now / 1e9
        spent_s = time.process_time() + sum(map(processor_s, launcher.pids.values()))
        self._edges.append((now_s, spent_s))

    def measured(self, result: outpace.Result) -> tuple[Floats, Floats]:
        """Return iterations per second, and processor seconds per second, of each window."""
        at_s, spent_s = np.array(self._edges).T
        done = sum(np.interp(at_s, ends, np.arange(1, len(ends) + 1)) for ends in ends_s(result, 2))
        return np.diff(done) / np.diff(at_s), np.diff(spent_s) / np.diff(at_s)
