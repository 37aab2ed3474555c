"""The cost of membership and checkpoints in runs without failures.

A run with both is compared with a run with neither, pair by pair, one after the other. Membership
cannot be left out of a run: without a loss it is the heartbeats of the connections, the generation
number in each message (one byte, in both runs), and a state machine that nothing calls. So the
other run has no checkpoints, and a lease that is so long that there are no heartbeats.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from unittest import mock

from benchmarks.failures.rows import Row, row
from benchmarks.failures.running import ends_s, processor_s, run

from outpace.engine.control import Control
from outpace.real.process.local import LocalLauncher
from outpace.real.run import RealRun

GOAL = 0.01
EVERY_S = 10.0  # between checkpoints
_NO_HEARTBEATS_S = 3600.0  # a fifth of the lease is between two of them
_WORKERS, _SERVERS = 4, 2
_BEGIN_S: Final = 3.0  # of the window that is measured, or its length if that is less


def failure_free(out: Path, say: Callable[[str], object], pairs: int, window_s: float) -> list[Row]:
    """Return the shares of iterations and of processor time that membership and checkpoints cost.

    Steps sleep until 50 ms have passed, so that the other load of the machine matters little.
    """
    fewer, more = [], []
    cores = os.cpu_count() or 1
    for pair in range(pairs):
        found: dict[bool, tuple[float, float]] = {}
        for ready in (True, False) if pair % 2 else (False, True):
            folder = out / f"{pair}-{'with both' if ready else 'with neither'}"
            say(f"{folder.name}: {_begin_s(window_s) + window_s:.0f} s")
            found[ready] = _measured(folder, window_s, ready=ready)
        (rate, busy), (plain, plain_busy) = found[True], found[False]
        fewer.append(1 - rate / plain)
        more.append((busy - plain_busy * rate / plain) / cores)
    name = f"membership, and a checkpoint each {EVERY_S:g} s, SSP, {_WORKERS} workers"
    return [
        row(f"{name}: iterations", fewer, unit="%", goal=GOAL, around="95 %"),
        row(f"{name}: time of {cores} processors", more, unit="%", goal=GOAL, around="95 %"),
    ]


def _begin_s(window_s: float) -> float:
    return min(_BEGIN_S, window_s)


def _measured(folder: Path, window_s: float, *, ready: bool) -> tuple[float, float]:
    """Return iterations, and processor seconds of all processes, per second of the window."""
    begin_s = _begin_s(window_s)
    config: dict[str, Any] = {
        "task": {"kind": "digits-mlp"},
        "workers": _WORKERS,
        "servers": _SERVERS,
        "sync": {"kind": "ssp", "staleness": 3},
        "compute": {"kind": "constant", "mean_s": 0.05},
        "stop": {"virtual_time_s": 1.5 * begin_s + window_s},
        "probe": False,
    }
    if ready:
        config["checkpoint"] = {"every_s": EVERY_S}
    runs: list[RealRun] = []
    edges: list[tuple[float, float]] = []

    def note() -> None:
        launcher = runs[0].launcher
        assert isinstance(launcher, LocalLauncher)
        spent_s = time.process_time() + sum(map(processor_s, launcher.pids.values()))
        edges.append((runs[0].coordinator.clock.now / 1e9, spent_s))

    def control(given: Control) -> None:
        given.at(begin_s, note)
        given.at(begin_s + window_s, note)

    defaults = RealRun.__init__.__kwdefaults__
    lease = {} if ready else {"lease_s": _NO_HEARTBEATS_S}
    with mock.patch.dict(defaults, lease):
        result = run(config, folder, control=control, watch=runs.append)
    if result.summary["restarts"]:
        raise RuntimeError(f"{folder}: a process was lost")
    (begin_s, before_s), (end_s, after_s) = edges
    ended = ends_s(result, _WORKERS)
    done = sum(int(((begin_s <= ends) & (ends < end_s)).sum()) for ends in ended)
    return done / (end_s - begin_s), (after_s - before_s) / (end_s - begin_s)
