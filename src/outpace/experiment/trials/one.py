"""Carries out one run in virtual time, with its warnings, evaluations and end reported."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from outpace.config.experiment import Experiment
from outpace.errors import OutpaceError
from outpace.experiment.simulating import recorded_run
from outpace.experiment.tracking import Tracking
from outpace.simulation.virtual import Progress
from outpace.support.notices import warnings_to
from outpace.support.repeatable import one_thread_own_randomness

Status: TypeAlias = Literal["complete", "stopped", "failed"]
_OF_POINT = ("time_s", "updates", "gradients", "accuracy", "train_loss", "test_loss")


class Stopped(KeyboardInterrupt):
    """Ends a run as Ctrl-C does, so that its folder is completed in the same way."""


@dataclass(frozen=True, slots=True)
class End:
    """How a run ended; the attributes are those of `Ended`."""

    status: Status
    error: str | None
    summary: dict[str, Any]
    cpu_s: float = 0.0


def carry_out(
    experiment: Experiment,
    folder: Path | None,
    tracking: Tracking,
    *,
    progress: Progress,
    evaluated: Callable[[dict[str, Any]], None] = lambda _: None,
    warning: Callable[[str], None],
    other_warnings: bool = False,
) -> End:
    """Run an experiment; see `Order`.

    Args:
        progress: called with the share that is done; may raise `Stopped`.
        evaluated: called with the values of a `Point`; may raise `Stopped`.
        warning: called with each warning.
        other_warnings: True to give it those that are not of Outpace, too.
    """

    def observe(row: Mapping[str, Any]) -> None:
        evaluated({name: row.get(name) for name in _OF_POINT})

    status: Status = "complete"
    error: str | None = None
    summary: dict[str, Any] = {}
    started_s = time.process_time()
    try:
        with warnings_to(warning, others=other_warnings), one_thread_own_randomness():
            run = recorded_run(
                experiment,
                folder,
                progress=progress,
                tracker=tracking,
                keep_trace=folder is not None,
                ended=summary.update,
            )
            run.engine.metrics.curve_observers.append(observe)
            run.drive()
    except (OutpaceError, OSError) as found:
        status, error = "failed", str(found)
    except Stopped as stopped:
        status, error = "stopped", str(stopped)
    if not summary:  # the run could not begin
        summary = {"status": "failed", "error": error}
    return End(status, error, summary, time.process_time() - started_s)
