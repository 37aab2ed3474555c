"""Weights & Biases.

`Run.log` drops a point whose step is lower than the last one, without an error. Steps of a tracker
always increase, so nothing is dropped.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class WandbRun:
    """A run of Weights & Biases as a tracker."""

    def __init__(self, run: Any) -> None:
        self._run = run

    def config(self, values: dict[str, Any]) -> None:
        self._run.config.update(values)

    def log(self, values: Mapping[str, float], step: int) -> None:
        self._run.log(dict(values), step=step)

    def finish(self, status: str) -> None:
        self._run.finish(exit_code=0 if status == "complete" else 1)


def is_logged_in(mode: str | None) -> bool:
    """True if there is a key of an account, or the mode needs none. Asks no questions."""
    if (mode or os.environ.get("WANDB_MODE", "online")) != "online":
        return True
    import wandb

    return bool(wandb.login(prompt=False, verify=False))


def begin(
    project: str,
    entity: str | None,
    group: str | None,
    mode: str | None,
    tags: Sequence[str],
    name: str,
    folder: Path | None,
) -> WandbRun:
    """Begin a run. folder: for its files; None: the current one."""
    import wandb

    made = wandb.init(
        project=project,
        entity=entity,
        group=group,
        mode=mode,
        tags=tuple(tags),
        name=name,
        id=secrets.token_hex(4),  # not from the random numbers of the training
        dir=None if folder is None else str(folder),
        reinit="create_new",  # several runs in a process
        settings=wandb.Settings(silent=True, console="off"),
    )
    return WandbRun(made)
