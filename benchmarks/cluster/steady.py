"""The speed of a run on a cluster beside the same run of the local launcher, on one machine.

Both start the same processes in the same way, so what can differ is what runs beside them: Ray's
own processes, and the actors that have started the roles.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.cluster.nodes import OneNode, one_node
from benchmarks.failures.rows import Row, row
from benchmarks.failures.running import ends_s, large, processor_s, run

from outpace.engine.control import Control
from outpace.real.process.local import LocalLauncher
from outpace.real.run import RealRun

GOAL = 0.05
_BEGIN_S: Final = 5.0  # of the window that is measured, or its length if that is less


def steady(
    out: Path, say: Callable[[str], object], pairs: int, window_s: float, sizes: Sequence[float]
) -> list[Row]:
    """Return the shares of iterations and of processor time that a run on Ray costs.

    Pairs of runs in turn, as fast as the processors allow. sizes: of the models, in MB.
    """
    rows = []
    cores = os.cpu_count() or 1
    with one_node(cpus=4) as cluster:
        for size in sizes:
            fewer, more = [], []
            for pair in range(pairs):
                found: dict[bool, tuple[float, float]] = {}
                for on_ray in (True, False) if pair % 2 else (False, True):
                    folder = out / f"{size:g}-{pair}-{'ray' if on_ray else 'local'}"
                    say(f"{folder.name}: {_begin_s(window_s) + window_s:.0f} s")
                    config = large(size, workers=2, servers=1)
                    where = cluster if on_ray else None
                    found[on_ray] = _measured(folder, config, window_s, where)
                (rate, busy), (plain, plain_busy) = found[True], found[False]
                fewer.append(1 - rate / plain)
                more.append((busy - plain_busy * rate / plain) / cores)
            name = f"on Ray, BSP, 2 workers and a server, a model of {size:g} MB"
            rows += [
                row(f"{name}: iterations", fewer, unit="%", goal=GOAL, around="95 %"),
                row(f"{name}: time of {cores} processors", more, unit="%", around="95 %"),
            ]
    return rows


def _begin_s(window_s: float) -> float:
    return min(_BEGIN_S, window_s)


def _measured(
    folder: Path, config: dict[str, Any], window_s: float, cluster: OneNode | None
) -> tuple[float, float]:
    """Return iterations, and processor seconds of all processes, per second of the window.

    cluster: where the run is; None: it is started by the local launcher. Ray's own processes are
    counted too.
    """
    begin_s = _begin_s(window_s)
    changed: dict[str, Any] = {"stop": {"virtual_time_s": 1.2 * begin_s + window_s}}
    if cluster is not None:
        changed["launcher"] = {"kind": "ray", "address": cluster.address}
    runs: list[RealRun] = []
    edges: list[tuple[float, float]] = []

    def note() -> None:
        now_s = runs[0].coordinator.clock.now / 1e9
        spent_s = time.process_time()
        if cluster is None:
            launcher = runs[0].launcher
            assert isinstance(launcher, LocalLauncher)
            spent_s += sum(map(processor_s, launcher.pids.values()))
        else:
            spent_s += cluster.processor_s()
        edges.append((now_s, spent_s))

    def control(given: Control) -> None:
        given.at(begin_s, note)
        given.at(begin_s + window_s, note)

    result = run(config | changed, folder, control=control, watch=runs.append)
    if result.summary["restarts"]:
        raise RuntimeError(f"{folder}: a process was lost")
    (begin_s, before_s), (end_s, after_s) = edges
    ended = ends_s(result, config["workers"])
    done = sum(int(((begin_s <= ends) & (ends < end_s)).sum()) for ends in ended)
    return done / (end_s - begin_s), (after_s - before_s) / (end_s - begin_s)
