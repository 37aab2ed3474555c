"""The runs that a pool carries out, and its reports about them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from outpace.config.experiment import Experiment


@dataclass(frozen=True, slots=True)
class Order:
    """One run in virtual time.

    Attributes:
        key: names the run in the reports of the pool.
        folder: for the results, new or empty. None: only the points and the summary are kept, in
            memory, without a trace, a report, the parameters or
            the output of a script.
        name: of the run in trackers, and before what its script prints to standard error.
    """

    key: Hashable
    experiment: Experiment
    folder: Path | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class Point:
    """An evaluation of a run, as a row of metrics.parquet; of a script, one of its curve's points.

    A value that is not known is None.
    """

    key: Hashable
    time_s: float
    updates: int | None
    gradients: int | None
    accuracy: float | None
    train_loss: float | None
    test_loss: float | None


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a run.

    Attributes:
        status: `complete`; `stopped`, by `Pool.stop`; or `failed`.
        error: why the run was stopped, or how it failed; None if it is complete.
        summary: the content of summary.json. If the run could not begin, only `status` and
            `error`.
        points: all points of the run, in order.
        cpu_s: processor time of the process that simulated the run, in seconds; without the
            processes of a script or of the executor `processes`.
    """

    key: Hashable
    status: Literal["complete", "stopped", "failed"]
    error: str | None
    summary: dict[str, Any]
    points: tuple[Point, ...]
    cpu_s: float
