"""The experiments by name: a YAML file in the folder of its paper, and beside it its judge."""

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
    """Return the module beside the YAML file of this experiment."""
    path = EXPERIMENTS[name]
    module = path.stem.replace("-", "_")
    return importlib.import_module(f"benchmarks.papers.{path.parent.name}.{module}")
