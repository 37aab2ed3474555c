"""Configurations of real runs of scripts, and the values that the scripts have logged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.paths import SCRIPTS

LOGGED = ["worker", "iteration", "train_loss", "lr", "seen"]  # by scripts/kept.py


def script_run(script: str, *arguments: object, mean_s: float, **changes: Any) -> dict[str, Any]:
    """Return the configuration of a run of a script with two workers and two servers, under bsp.

    Args:
        script: its name in `scripts`.
        mean_s: duration of a gradient.
    """
    task = {"kind": "script", "path": str(SCRIPTS / script), "arguments": [*map(str, arguments)]}
    return {
        "task": task,
        "workers": 2,
        "servers": 2,
        "sync": {"kind": "bsp"},
        "deterministic": True,
        "probe": False,
        "compute": {"kind": "constant", "mean_s": mean_s},
        **changes,
    }


def logged(result: Any) -> dict[str, list[Any]]:
    """Return the values that the scripts have logged, by worker and iteration."""
    order = [("worker", "ascending"), ("iteration", "ascending")]
    table: dict[str, list[Any]] = result.metrics.sort_by(order).select(LOGGED).to_pydict()
    return table


def without_costs(said: list[str]) -> Callable[[str], None]:
    """Return a log that keeps all lines in `said`, except for the costs of a lost process."""
    return lambda line: None if line.startswith("without checkpoint ") else said.append(line)
