"""Outpace: train past stragglers.

A synchronization strategy for data-parallel PyTorch training is written once, tried on
the user's own model in virtual time, and then run unchanged for real.

    import outpace

    result = outpace.simulate("experiment.yaml")
    result.summary["accuracy"], result.metrics, result.parameters
"""

from __future__ import annotations

TYPE_CHECKING = False  # not from typing: until the command guards itself, little is imported
if TYPE_CHECKING:
    from typing import Any

    from outpace.comparison import Row, Variant, compare, variants_from
    from outpace.config import Evaluate, Experiment, Stop, experiment_from
    from outpace.control import Control
    from outpace.errors import ConfigError, DivergenceError, OutpaceError, RunError
    from outpace.experiment import Result, run, simulate
    from outpace.script import abortable, attach, finish, rank, sampler, world_size
    from outpace.simulation.api import Simulator, Worker
    from outpace.tasks import Task

__version__ = "0.1.0"

_HOME = {
    "Row": "comparison", "Variant": "comparison", "compare": "comparison",
    "variants_from": "comparison",
    "Evaluate": "config", "Experiment": "config", "Stop": "config", "experiment_from": "config",
    "ConfigError": "errors", "DivergenceError": "errors", "OutpaceError": "errors",
    "RunError": "errors",
    "Control": "control",
    "Result": "experiment", "run": "experiment", "simulate": "experiment",
    "abortable": "script", "attach": "script", "finish": "script", "rank": "script",
    "sampler": "script",
    "world_size": "script",
    "Simulator": "simulation.api", "Worker": "simulation.api",
    "Task": "tasks",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import on first use: `outpace --help` need not wait for torch."""
    if name not in _HOME:
        raise AttributeError(f"module 'outpace' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"outpace.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "ConfigError",
    "Control",
    "DivergenceError",
    "Evaluate",
    "Experiment",
    "OutpaceError",
    "Result",
    "Row",
    "RunError",
    "Simulator",
    "Stop",
    "Task",
    "Variant",
    "Worker",
    "abortable",
    "attach",
    "compare",
    "experiment_from",
    "finish",
    "rank",
    "run",
    "sampler",
    "simulate",
    "variants_from",
    "world_size",
]
