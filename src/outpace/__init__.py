"""Outpace: train past stragglers.

A synchronization strategy for data-parallel PyTorch training is written once, tried on
the user's own model in virtual time, and then run unchanged for real.

    import outpace

    result = outpace.simulate("experiment.yaml")
    result.summary["accuracy"], result.metrics, result.parameters
"""

from __future__ import annotations

from outpace.support.version import __version__

TYPE_CHECKING = False  # not from typing: until the command guards itself, little is imported
if TYPE_CHECKING:
    from typing import Any

    from outpace.config.experiment import Evaluate, Experiment, Stop, Target
    from outpace.config.reading import experiment_from
    from outpace.engine.control import Control
    from outpace.errors import ConfigError, DivergenceError, OutpaceError, RunError
    from outpace.experiment.comparison import Row, Variant, compare, variants_from
    from outpace.experiment.results import Result
    from outpace.experiment.running import run, simulate
    from outpace.script import abortable, attach, finish, rank, sampler, world_size
    from outpace.simulation.by_hand import Simulator, Worker
    from outpace.sync import theory
    from outpace.tasks import Task

_HOME = {
    "ConfigError": "errors",
    "Control": "engine.control",
    "DivergenceError": "errors",
    "Evaluate": "config.experiment",
    "Experiment": "config.experiment",
    "OutpaceError": "errors",
    "Result": "experiment.results",
    "Row": "experiment.comparison",
    "RunError": "errors",
    "Simulator": "simulation.by_hand",
    "Stop": "config.experiment",
    "Target": "config.experiment",
    "Task": "tasks",
    "Variant": "experiment.comparison",
    "Worker": "simulation.by_hand",
    "abortable": "script",
    "attach": "script",
    "compare": "experiment.comparison",
    "experiment_from": "config.reading",
    "finish": "script",
    "rank": "script",
    "run": "experiment.running",
    "sampler": "script",
    "simulate": "experiment.running",
    "theory": "sync.theory",
    "variants_from": "experiment.comparison",
    "world_size": "script",
}


def __getattr__(name: str) -> Any:
    """Import on first use: `outpace --help` need not wait for torch."""
    if name not in _HOME:
        raise AttributeError(f"module 'outpace' has no attribute {name!r}")
    import importlib

    home = importlib.import_module(f"outpace.{_HOME[name]}")
    return home if name == "theory" else getattr(home, name)


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
    "Target",
    "Task",
    "Variant",
    "Worker",
    "__version__",
    "abortable",
    "attach",
    "compare",
    "experiment_from",
    "finish",
    "rank",
    "run",
    "sampler",
    "simulate",
    "theory",
    "variants_from",
    "world_size",
]
