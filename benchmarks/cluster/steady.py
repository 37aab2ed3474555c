"""The speed of a run on a cluster beside the same run of the local launcher, on one machine.

Both start the same processes in the same way, so what can differ is what runs beside them: Ray's
own processes, and the actors that have started the roles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from benchmarks.cluster.nodes import one_node
from benchmarks.failures.running import large
from benchmarks.failures.windows import costs, in_window
from benchmarks.rows import Row

GOAL: Final = 0.05
_BEGIN_S: Final = 5.0


def steady(
    out: Path, say: Callable[[str], object], pairs: int, window_s: float, sizes: Sequence[float]
) -> list[Row]:
    """Return the shares of iterations and of processor time that a run on Ray costs.

    Pairs of runs in turn, as fast as the processors allow; Ray's own processes count, too. sizes:
    of the models, in MB.
    """
    rows = []
    with one_node(cpus=4) as cluster:
        for size in sizes:

            def measured(folder: Path, on_ray: bool, size: float = size) -> tuple[float, float]:
                config = large(size, workers=2, servers=1)
                if not on_ray:
                    return in_window(config, folder, _BEGIN_S, window_s)
                config["launcher"] = {"kind": "ray", "address": cluster.address}
                spent_s = cluster.processor_s
                return in_window(config, folder, _BEGIN_S, window_s, lambda _: spent_s())

            name = f"on Ray, BSP, 2 workers and a server, a model of {size:g} MB"
            rows += costs(name, out / f"{size:g}-MB", say, pairs, measured, (GOAL, None))
    return rows
