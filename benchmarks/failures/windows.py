"""The speed of real runs in windows of time, and what something costs in pairs of runs.

A run's speed changes by more than what is measured costs, as other programs come and go. So two
quantities are compared: iterations, and the processor time that all processes of the run need for
as many iterations, which other programs change less.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.failures.running import Floats, ends_s, processor_s, run
from benchmarks.rows import Row, row

import outpace
from outpace.engine.control import Control
from outpace.real.process.local import LocalLauncher
from outpace.real.run import RealRun

CORES = os.cpu_count() or 1


def spent_locally_s(run: RealRun) -> float:
    """Return the processor time so far of all processes of a run on this machine."""
    assert isinstance(run.launcher, LocalLauncher)
    return sum(map(processor_s, run.launcher.pids.values()))


class Windows:
    """Notes the processor time of a run at the edges of windows.

    Args:
        edges_s: seconds of the run, ascending; a window is between each two.
        spent_s: processor time so far of the run's processes, without this one.
    """

    def __init__(
        self, edges_s: Sequence[float], spent_s: Callable[[RealRun], float] = spent_locally_s
    ) -> None:
        self._edges_s, self._spent_s = edges_s, spent_s
        self._run: RealRun | None = None
        self._noted: list[tuple[float, float]] = []  # time of the run, processor time

    def watch(self, run: RealRun) -> None:
        self._run = run

    def control(self, control: Control) -> None:
        for edge_s in self._edges_s:
            control.at(edge_s, self._note)

    def _note(self) -> None:
        assert self._run is not None
        now_s = self._run.coordinator.clock.now / 1e9
        self._noted.append((now_s, time.process_time() + self._spent_s(self._run)))

    def measured(self, result: outpace.Result, workers: int) -> tuple[Floats, Floats]:
        """Return iterations per second, and processor seconds per second, of each window."""
        at_s, spent_s = np.array(self._noted).T
        ended = ends_s(result, workers)
        done = sum(np.interp(at_s, ends, np.arange(1, len(ends) + 1)) for ends in ended)
        return np.diff(done) / np.diff(at_s), np.diff(spent_s) / np.diff(at_s)


def costs(
    name: str,
    out: Path,
    say: Callable[[str], object],
    pairs: int,
    measured: Callable[[Path, bool], tuple[float, float]],
    goals: tuple[float | None, float | None],
) -> list[Row]:
    """Return the shares of iterations and of processor time that something costs.

    Args:
        measured: makes a run in a folder, with it or without; returns iterations, and processor
            seconds of all processes, per second.
        goals: of the two shares.
    """
    fewer, more = [], []
    for pair in range(pairs):
        found: dict[bool, tuple[float, float]] = {}
        for with_it in (True, False) if pair % 2 else (False, True):
            folder = out / f"{pair}-{'with' if with_it else 'without'}"
            say(str(folder))
            found[with_it] = measured(folder, with_it)
        (rate, busy), (plain, plain_busy) = found[True], found[False]
        fewer.append(1 - rate / plain)
        more.append((busy - plain_busy * rate / plain) / CORES)
    return cost_rows(name, fewer, more, goals)


def cost_rows(
    name: str,
    fewer: Sequence[float],
    more: Sequence[float],
    goals: tuple[float | None, float | None],
) -> list[Row]:
    """Return the rows of shares of iterations, and of the time of all processors."""
    return [
        row(f"{name}: iterations", fewer, unit="%", goal=goals[0], around="95 %"),
        row(f"{name}: time of {CORES} processors", more, unit="%", goal=goals[1], around="95 %"),
    ]


def in_window(
    config: dict[str, Any],
    folder: Path,
    begin_s: float,
    window_s: float,
    spent_s: Callable[[RealRun], float] = spent_locally_s,
) -> tuple[float, float]:
    """Run for real; return iterations and processor seconds per second of one window.

    begin_s: of the window; the window's length if that is less.
    """
    begin_s = min(begin_s, window_s)
    windows = Windows([begin_s, begin_s + window_s], spent_s)
    stop = {"virtual_time_s": 1.5 * begin_s + window_s}
    result = run({**config, "stop": stop}, folder, control=windows.control, watch=windows.watch)
    if result.summary["restarts"]:
        raise RuntimeError(f"{folder}: a process was lost")
    rates, busy = windows.measured(result, config["workers"])
    return float(rates[0]), float(busy[0])
