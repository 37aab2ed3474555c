"""Converts plain data, such as YAML, to an `Experiment` and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final

from outpace.config.cluster_files import included
from outpace.config.experiment import Experiment
from outpace.config.sections import read_section
from outpace.errors import ConfigError
from outpace.support.checks import KINDS
from outpace.support.paths import with_paths
from outpace.sync.assignment import Sync

# The default kinds of sections that need not give a kind, and of sections in them.
_USUAL_KINDS: Final[Mapping[str, Any]] = {
    "optimizer": ("sgd", {"schedule": ("constant", {})}),
    "executor": ("auto", {}),
    "launcher": ("local", {}),
}


def experiment_from(data: Mapping[str, Any], source: str, folder: Path | None = None) -> Experiment:
    """Return the Experiment that plain data, such as YAML, describe.

    The key `include` names cluster files, see `cluster_files`.

    Args:
        source: name of the data in errors.
        folder: folder that relative file paths start from; None: the current one.

    Raises:
        ConfigError: listing the problems of all sections.
    """
    if not isinstance(data, Mapping):
        raise ConfigError(f"{source} must be a mapping of keys, not {data!r}")
    trackers = data.get("trackers")
    if isinstance(trackers, list) and any(isinstance(each, Mapping) for each in trackers):
        raise ConfigError(
            f"{source}: trackers: name what makes each tracker, as in trackers: "
            "['trackers.py:TensorBoard'] for that class of examples/trackers.py"
        )
    data, origin = included(data, source, folder or Path.cwd())
    experiment: Experiment = read_section(Experiment, _with_kinds(data), "", source, origin)
    try:
        made: Experiment = with_paths(experiment, folder or Path.cwd())
        return made
    except (OSError, ValueError) as error:
        raise ConfigError(f"{source}: invalid path: {error}") from error


def sync_from(data: Any, source: str) -> Sync:
    """Return the strategy that plain data describe. Raises ConfigError listing all problems."""
    found: Sync = section_from(Sync, data, "sync", source)
    return found


def section_from(kinds: Any, data: Any, path: str, source: str) -> Any:
    """Return a section that plain data describe: one of several dataclasses, chosen by `kind`.

    Args:
        path: path of the section in errors.

    Raises:
        ConfigError: listing all problems.
    """
    return read_section(Annotated[kinds, KINDS], data, path, source, {})


def to_plain(experiment: Experiment) -> dict[str, Any]:
    """Return the configuration as plain data with all defaults filled in.

    Keys that a script decides itself are left out, because the script does not use their defaults.
    """
    found: dict[str, Any] = plain(dataclasses.asdict(experiment))
    if experiment.has_script:
        for key in experiment.decided_by_script:
            del found[key]
    return found


def plain(value: Any) -> Any:
    """Return the value converted to dictionaries, lists, text and numbers."""
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return value.value if isinstance(value, Enum) else value


def _with_kinds(data: Mapping[str, Any], kinds: Mapping[str, Any] = _USUAL_KINDS) -> dict[str, Any]:
    """Return the configuration with the default kind of each section that gives none."""
    found = dict(data)
    for key, (kind, inner) in kinds.items():
        if isinstance(section := found.get(key), Mapping):
            found[key] = {"kind": kind, **_with_kinds(section, inner)}
    return found
