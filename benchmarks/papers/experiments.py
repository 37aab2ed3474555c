"""The experiments by name: YAML file and judge are in the folder of the paper."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from outpace.experiment.compared import Variant
from outpace.experiment.comparison import variants_from
from outpace.support.yaml_files import merged


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


def variants_of(name: str, data: Mapping[str, Any]) -> list[Variant]:
    """Return the variants of an experiment.

    A grid has `cases` and `strategies`, two mappings of names to settings. Its variants are each
    case with each strategy, named "CASE STRATEGY".

    Args:
        data: the YAML file of the experiment, with a list `variants` or a list `grids`.

    Raises:
        ConfigError: with all errors of all variants.
    """
    path = EXPERIMENTS[name]
    plain = {key: value for key, value in data.items() if key != "grids"}
    crossed = [
        {**merged(case, strategy), "name": f"{of_case} {of_strategy}"}
        for grid in data.get("grids", ())
        for of_case, case in grid["cases"].items()
        for of_strategy, strategy in grid["strategies"].items()
    ]
    return variants_from({"variants": crossed, **plain}, str(path), path.parent)
