"""The command with which a run that was interrupted goes on."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

Began: TypeAlias = Literal["run", "simulate"]


def resume_command(command: Began, folder: Path) -> str:
    """Return the command, which a shell takes as it is; folder: of the run."""
    return f"outpace {command} --resume {shlex.quote(str(folder))}"


def began_with(summary: Mapping[str, Any]) -> Began:
    """Return the command that began the run with this summary."""
    return "simulate" if "virtual_time_s" in summary else "run"
