"""One run in virtual time in a process of a pool, and the messages that report its progress."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from outpace.config.experiment import Experiment
from outpace.errors import OutpaceError
from outpace.experiment.results import Result
from outpace.experiment.simulating import recorded_run
from outpace.support.notices import warnings_to
from outpace.support.repeatable import one_thread_own_randomness
from outpace.tasks import GivenTask

_STEP: Final = 0.01  # seconds between two messages about the progress of a run
_VALUES: Final = ("time_s", "accuracy", "train_loss")


@dataclass(frozen=True, slots=True)
class Order:
    """An order to carry out a run in virtual time.

    Attributes:
        key: name of the run in the reports of the pool; plain data that can be sent to other
            processes.
        folder: folder for the results, new or empty. None: only the points and the summary are
            kept, in memory, without a trace, a report, the parameters or the output of a script.
        name: name of the run in trackers, and before the standard error of its script.
        here: True to carry out the run in the process of the pool, which has the measured run
            times; then all results are in `Ended.result`.
    """

    key: Hashable
    experiment: Experiment
    folder: Path | None = None
    name: str = ""
    here: bool = False

    @property
    def is_here(self) -> bool:
        """True if the run is carried out in the process of the pool.

        A task that was given from Python cannot be sent to another process.
        """
        return self.here or isinstance(self.experiment.task, GivenTask)


@dataclass(frozen=True, slots=True)
class Point:
    """An evaluation of a run as a row of metrics.parquet; for a script, a point of its curve.

    An unknown value is None.
    """

    key: Hashable
    time_s: float
    accuracy: float | None
    train_loss: float | None


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a run.

    Attributes:
        status: `complete`; `stopped`, by `Pool.stop`; or `failed`.
        error: why the run was stopped, or how it failed; None if it is complete.
        summary: the content of summary.json. If the run could not begin, only `status` and
            `error`.
        points: all points of the run, in order; none if its process was lost.
        result: with `Order.here`, the result of a complete run.
    """

    key: Hashable
    status: Literal["complete", "stopped", "failed"]
    error: str | None
    summary: dict[str, Any]
    points: tuple[Point, ...] = ()
    result: Result | None = None

    @staticmethod
    def failed(key: Hashable, error: str) -> Ended:
        """Return the end of a run that could not begin, or whose process was lost."""
        return Ended(key, "failed", error, {"status": "failed", "error": error})

    @staticmethod
    def unbegun(key: Hashable, reason: str) -> Ended:
        """Return the end of a run that was stopped before it began."""
        return Ended(key, "stopped", reason, {"status": "partial", "error": reason})


Told: TypeAlias = float | str | Point | Ended
"""About a run under way: the share that is done, a warning, an evaluation, and at last its end."""


class Stopped(KeyboardInterrupt):
    """Ends a run like Ctrl-C, so that its folder is completed in the same way."""


def carry_out(
    order: Order,
    folder: Path | None,
    tell: Callable[[Told], None],
    stopped: Callable[[], str | None] = lambda: None,
) -> Ended:
    """Carry out a run, and report its progress, evaluations and warnings.

    Args:
        folder: folder for the results, in place of the order's.
        stopped: returns the reason why the run is to end now; None: it continues.

    Returns:
        The end of the run.
    """
    told = 0.0  # the completed share
    points: list[Point] = []

    def stop_if_asked() -> None:
        if (reason := stopped()) is not None:
            raise Stopped(reason)

    def progress(share: float) -> None:
        nonlocal told
        stop_if_asked()
        if share - told >= _STEP:
            told = float(share)
            tell(told)

    def evaluated(row: Mapping[str, Any]) -> None:
        values: dict[str, Any] = {name: row.get(name) for name in _VALUES}
        points.append(Point(order.key, **values))
        tell(points[-1])
        stop_if_asked()

    status: Literal["complete", "stopped", "failed"] = "complete"
    error: str | None = None
    summary: dict[str, Any] = {}
    result: Result | None = None
    try:
        with warnings_to(tell, others=True), one_thread_own_randomness():
            run = recorded_run(
                order.experiment,
                folder,
                progress=progress,
                name=order.name,
                keep_trace=folder is not None or order.here,
                ended=summary.update,
            )
            run.engine.metrics.curve_observers.append(evaluated)
            result = run.drive()
    except (OutpaceError, OSError) as found:
        status, error = "failed", str(found)
    except Stopped as reason:
        status, error = "stopped", str(reason)
    if not summary:  # the run could not begin
        summary = {"status": "failed", "error": error}
    kept = result if order.here else None
    return Ended(order.key, status, error, summary, tuple(points), kept)
