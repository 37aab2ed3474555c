"""BSP for the first quarter of the iterations, then ASP: Sync-Switch by code that looks at a run.

Li, Mangoubi, Xu and Guo, Sync-Switch: hybrid parameter synchronization for distributed deep
learning, ICDCS 2021.

python examples/sync_switch.py
"""

from __future__ import annotations

import outpace
from outpace.sync import Asp

ITERATIONS, SYNCHRONOUS = 80, 20
LOOK_EACH_S = 0.05


def switch(run: outpace.Control) -> None:
    """Have all servers follow ASP once every worker has done the synchronous iterations."""
    if min(run.summary()["iterations"]) < SYNCHRONOUS:
        run.at(run.now_s + LOOK_EACH_S, lambda: switch(run))
    else:
        print(f"ASP from {run.now_s:.2f} s on")
        run.set_policy("*", Asp())


if __name__ == "__main__":
    config = {
        "task": {"kind": "digits-mlp"},
        "workers": 8,
        "servers": 2,
        "sync": {"kind": "bsp"},
        "compute": {"kind": "lognormal", "mean_s": 0.1, "cv": 0.3},
        "optimizer": {"kind": "sgd", "lr": 0.1},
        "evaluate": {"every_s": 1.0},
        "stop": {"iterations": ITERATIONS},
    }
    result = outpace.simulate(config, control=switch)
    print(f"{result.summary['virtual_time_s']:.1f} s, accuracy {result.summary['accuracy']:.1%}")
