"""Real runs whose processes are killed at given times."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import outpace
from outpace.engine.control import Control
from outpace.real.process.local import LocalLauncher
from outpace.real.run import RealRun

LARGE: Final = {"kind": "python", "target": f"{Path(__file__).parent / 'large.py'}:make_task"}


def large(megabytes: float, **changes: Any) -> dict[str, Any]:
    """Return the configuration of a run with a model of this many MB, limited by the processors."""
    return {
        "task": {**LARGE, "arguments": {"megabytes": megabytes}},
        "workers": 2,
        "servers": 1,
        "sync": {"kind": "bsp"},
        "optimizer": {"kind": "sgd", "lr": 0.01},
        "batch_size": 1,
        "probe": False,
        **changes,
    }


def kill(run: RealRun, name: str) -> None:
    """Kill a process of a run."""
    launcher = run.launcher
    assert isinstance(launcher, LocalLauncher)
    os.kill(launcher.pids[name], signal.SIGKILL)


def run(
    config: dict[str, Any],
    folder: Path,
    kills: Sequence[tuple[float, str]] = (),
    control: Callable[[Control], None] = lambda _: None,
    watch: Callable[[RealRun], None] = lambda _: None,
) -> outpace.Result:
    """Run the configuration for real.

    kills: pairs of seconds of the run and names of the processes that are killed at that time.
    """
    left = list(kills)
    runs: list[RealRun] = []

    def kill_once(each: tuple[float, str]) -> None:
        if each in left:
            left.remove(each)
            kill(runs[0], each[1])

    def controls(given: Control) -> None:
        """Start the kills; called when the training begins, and after each loss of a server."""
        for each in left:
            given.at(each[0], partial(kill_once, each))
        control(given)

    def watches(run: RealRun) -> None:
        runs.append(run)
        watch(run)

    return outpace.run(config, folder, watch=watches, control=controls)
