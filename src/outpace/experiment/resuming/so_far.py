"""The summary of a run that is running, or was killed: all until its last checkpoint.

A run that is killed cannot write its results. So its summary is written with each checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from outpace.config.experiment import Experiment
from outpace.experiment.resuming.command import began_with, resume_command
from outpace.record.checkpoints import Taken
from outpace.record.checkpoints.committed import name_of
from outpace.record.metrics import Metrics
from outpace.support.units import seconds


def at_checkpoint(
    summary: Mapping[str, Any],
    taken: Taken,
    metrics: pa.Table,
    experiment: Experiment,
    folder: Path,
) -> dict[str, Any]:
    """Return the summary of a run as it was at a checkpoint.

    Args:
        summary: of the run at any time.
        metrics: as they are kept with the checkpoint.
        folder: of the run.
    """
    without_servers = experiment.peers is not None
    known = Metrics()
    known.take_up(metrics)
    time = "virtual_time_s" if began_with(summary) == "simulate" else "wall_time_s"
    return {
        **summary,
        time: seconds(taken.now),
        **taken.totals.summary(experiment.workers),
        **(taken.totals.summary_of_peers() if without_servers else {}),
        "servers": [
            {**server, **taken.totals.summary_of(number)}
            for number, server in enumerate(summary["servers"])
        ],
        **taken.recovery.summary(),
        **known.summary(experiment.goal),
        # Of the parameters and the trace as they are when the run has ended.
        "parameters_digest": None,
        "trace_digest": None,
        **going_on(began_with(summary), folder, taken.number),
    }


def going_on(command: Any, folder: Path | None, number: int) -> dict[str, Any]:
    """Return the part of summary.json about the last checkpoint, and the command that resumes it.

    Args:
        command: which began the run.
        number: of the checkpoint; 0: there is none.
    """
    if folder is None or number == 0:
        return {"checkpoint": None, "resume": None}
    return {"checkpoint": name_of(number), "resume": resume_command(command, folder.absolute())}
