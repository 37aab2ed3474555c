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

    from outpace.config.experiment import Experiment
    from outpace.config.goals import Evaluate, Stop, Target
    from outpace.config.reading import experiment_from
    from outpace.engine.control import Control
    from outpace.errors import ConfigError, DivergenceError, OutpaceError, RunError
    from outpace.experiment.advising.advise import Advice, advise
    from outpace.experiment.compared import Comparison, Row, Variant
    from outpace.experiment.comparison import compare, variants_from
    from outpace.experiment.explaining import explain
    from outpace.experiment.results import Result
    from outpace.experiment.resuming.loading import load_checkpoint
    from outpace.experiment.running import run, simulate
    from outpace.experiment.sweeping.found import Sweep
    from outpace.experiment.sweeping.sweep import sweep
    from outpace.script import (
        abortable,
        attach,
        finish,
        joined,
        log,
        output_dir,
        rank,
        sampler,
        untimed,
        world_size,
    )
    from outpace.simulation.by_hand import Simulator, Worker
    from outpace.sync import theory
    from outpace.tasks import Task

_NAMES = {  # by module
    "config.experiment": ["Experiment"],
    "config.goals": ["Evaluate", "Stop", "Target"],
    "config.reading": ["experiment_from"],
    "engine.control": ["Control"],
    "errors": ["ConfigError", "DivergenceError", "OutpaceError", "RunError"],
    "experiment.advising.advise": ["Advice", "advise"],
    "experiment.compared": ["Comparison", "Row", "Variant"],
    "experiment.comparison": ["compare", "variants_from"],
    "experiment.explaining": ["explain"],
    "experiment.results": ["Result"],
    "experiment.resuming.loading": ["load_checkpoint"],
    "experiment.running": ["run", "simulate"],
    "experiment.sweeping.found": ["Sweep"],
    "experiment.sweeping.sweep": ["sweep"],
    "script": [
        "abortable",
        "attach",
        "finish",
        "joined",
        "log",
        "output_dir",
        "rank",
        "sampler",
        "untimed",
        "world_size",
    ],
    "simulation.by_hand": ["Simulator", "Worker"],
    "sync": ["theory"],
    "tasks": ["Task"],
}


def __getattr__(name: str) -> Any:
    """Import on first use: `outpace --help` need not wait for torch."""
    for module, names in _NAMES.items():
        if name in names:  # `fromlist` also imports `theory`, which is a module
            return getattr(__import__(f"outpace.{module}", fromlist=[name]), name)
    raise AttributeError(f"module 'outpace' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "Advice",
    "Comparison",
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
    "Sweep",
    "Target",
    "Task",
    "Variant",
    "Worker",
    "__version__",
    "abortable",
    "advise",
    "attach",
    "compare",
    "experiment_from",
    "explain",
    "finish",
    "joined",
    "load_checkpoint",
    "log",
    "output_dir",
    "rank",
    "run",
    "sampler",
    "simulate",
    "sweep",
    "theory",
    "untimed",
    "variants_from",
    "world_size",
]
