"""The experiments by name: YAML file and judge are in the folder of the paper."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Final


def _name(path: Path) -> str:
    paper, experiment = path.parent.name, path.stem
    return experiment if experiment == paper else f"{paper}-{experiment}"


EXPERIMENTS: Final[Mapping[str, Path]] = {
    _name(path): path for path in sorted(Path(__file__).parent.glob("*/*.yaml"))
}


def judge_of(name: str) -> ModuleType:
    """Return the module in the folder of this experiment's YAML file."""
    path = EXPERIMENTS[name]
    module = path.stem.replace("-", "_")
    return importlib.import_module(f"benchmarks.papers.{path.parent.name}.{module}")
