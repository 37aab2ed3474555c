"""Goodput in virtual time, with random failures of workers and servers."""

from __future__ import annotations

from typing import Any, Final

from benchmarks.rows import Row, row

import outpace

_WORKERS = 8
_STRATEGIES: Final[dict[str, dict[str, Any]]] = {
    "BSP": {"sync": {"kind": "bsp"}, "servers": 2},
    "SSP": {"sync": {"kind": "ssp", "staleness": 3}, "servers": 2},
    "SSGD": {"sync": {"kind": "ssgd"}},
    "HPSGD": {"sync": {"kind": "hpsgd"}},
}
_GOALS: Final = {30: 0.96, 15: 0.97}  # by the seconds between two checkpoints


def goodput(length_s: float, seeds: int) -> list[Row]:
    """Return the goodput in virtual time with one failure of a worker or server in ten minutes.

    Eight workers with iterations of half a second, and two servers where the strategy has servers:
    all nodes fail equally often. Repairs take the default times.
    """
    return [
        row(
            f"goodput with one failure each 10 min, {name}, 8 workers, a checkpoint each {every} s",
            [_goodput(name, every, length_s, seed) for seed in range(seeds)],
            unit="%",
            goal=goal,
            at_least=True,
        )
        for every, goal in _GOALS.items()
        for name in _STRATEGIES
    ]


def _goodput(name: str, every_s: int, length_s: float, seed: int) -> float:
    strategy = _STRATEGIES[name]
    servers = int(strategy.get("servers", 0))
    law = {"mtbf_s": 600.0 * (_WORKERS + servers)}
    result = outpace.simulate(
        {
            "task": {"kind": "timing", "parameters": 1000},
            "workers": _WORKERS,
            "compute": {"kind": "lognormal", "mean_s": 0.5, "cv": 0.1},
            "stop": {"virtual_time_s": length_s},
            "checkpoint": {"every_s": every_s},
            "faults": {"workers": law, **({"servers": law} if servers else {})},
            "seed": seed,
            **strategy,
        }
    )
    return float(result.summary["faults"]["goodput"])
