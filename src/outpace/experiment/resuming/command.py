"""The command that resumes a run that was interrupted."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from outpace.errors import ConfigError
from outpace.record.folder import read_config
from outpace.support.place import ELSEWHERE

Began: TypeAlias = Literal["run", "simulate"]


def resume_command(command: Began, folder: Path) -> str:
    """Return the command, which a shell takes as it is; folder: of the run.

    The command for `outpace serve` has FILE in place of the file for the workers.
    """
    where = shlex.quote(str(folder))
    if command == "run" and _is_served(folder):
        return f"outpace serve --resume {where} --connect FILE"
    return f"outpace {command} --resume {where}"


def _is_served(folder: Path) -> bool:
    """True if the workers of a run were started elsewhere."""
    try:
        task = read_config(folder).get("task")
    except ConfigError:
        return False
    return isinstance(task, dict) and task.get("path") == ELSEWHERE


def began_with(summary: Mapping[str, Any]) -> Began:
    """Return the command that began the run with this summary."""
    return "simulate" if "virtual_time_s" in summary else "run"
