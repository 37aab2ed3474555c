"""Reads the arguments of commands: a YAML file or a script, a cluster file, a budget."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from outpace.errors import ConfigError

if TYPE_CHECKING:
    from outpace.experiment.sources import Source

ConfigOrScript: TypeAlias = Annotated[
    Path, typer.Argument(metavar="CONFIG|SCRIPT", help="A YAML file, or a training script.")
]
_UNITS: Final = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}


def source_data(
    command: str, config: Path, arguments: Sequence[str] | None, overrides: Sequence[str]
) -> tuple[dict[str, Any], Path]:
    """Return the data of a YAML file or for a script, and the folder that its paths start from.

    Args:
        arguments: the arguments after --, which are for a script.

    Raises:
        ConfigError: if the file cannot be read, or if a script has no number of workers.
    """
    from outpace.support.yaml_files import read_yaml

    if config.suffix != ".py":
        if arguments:
            raise ConfigError(
                f"arguments after -- are for a script, and {config} is not a script (.py); remove "
                "them"
            )
        return read_yaml(config), config.parent
    if not config.is_file():
        raise ConfigError(f"{config}: there is no such script")
    if not any(override.startswith("workers=") for override in overrides):
        raise ConfigError(
            f"{config}: the number of workers is missing: outpace {command} {config} --workers N"
        )
    return script_data(str(config.absolute()), arguments or ()), Path.cwd()


def source_for(
    command: str,
    config: Path,
    arguments: Sequence[str] | None,
    overrides: Sequence[str],
    cluster: Path | None = None,
    over: Sequence[str] = (),
) -> Source:
    """Return the configuration of a command: a file or a script, with its changed keys.

    over: keys of a sweep; `workers` may be one of them.

    Raises ConfigError like `source_data`, and if the cluster file cannot be read.
    """
    data, base = source_data(command, config, arguments, [*overrides, *over])
    # here, so that errors of YAML come at once
    from outpace.config.cluster_files import with_cluster
    from outpace.experiment.sources import Source
    from outpace.support.yaml_files import with_overrides

    if cluster is not None:
        data = with_cluster(data, cluster)
    return Source(with_overrides(data, overrides), str(config), base, None)


def script_data(path: str, arguments: Sequence[str]) -> dict[str, Any]:
    """Return the data of the experiment of a script."""
    task = {"kind": "script", "path": path, "arguments": list(arguments)}
    return {"task": task, "sync": {"kind": "bsp"}}


def seconds_of(text: str) -> float:
    """Return a time such as `60s`, `10m` or `1h` in seconds. Raises ConfigError."""
    found = re.fullmatch(r"\s*(\d*\.?\d+)\s*([a-z]*)\s*", text)
    if found is None or found[2] not in _UNITS or not float(found[1]):
        raise ConfigError(f"--budget {text}: give a time such as 60s, 10m or 1h")
    return float(found[1]) * _UNITS[found[2]]
