"""One run in virtual time that a pool carries out, and what is told about it."""

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

_STEP: Final = 0.01  # of a run, between two messages about its progress
_VALUES: Final = ("time_s", "accuracy", "train_loss")


@dataclass(frozen=True, slots=True)
class Order:
    """One run in virtual time.

    Attributes:
        key: names the run in the reports of the pool; plain data, which goes to other processes.
        folder: for the results, new or empty. None: only the points and the summary are kept, in
            memory, without a trace, a report, the parameters or the output of a script.
        name: of the run in trackers, and before what its script prints to standard error.
        here: True to carry it out in the process of the pool, which knows run times that were
            measured; all results are then in `Ended.result`.
    """

    key: Hashable
    experiment: Experiment
    folder: Path | None = None
    name: str = ""
    here: bool = False

    @property
    def is_here(self) -> bool:
        """True if the run is carried out in the process of the pool.

        A task that was given from Python cannot go to another process.
        """
        return self.here or isinstance(self.experiment.task, GivenTask)


@dataclass(frozen=True, slots=True)
class Point:
    """An evaluation of a run, as a row of metrics.parquet; of a script, one of its curve's points.

    A value that is not known is None.
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
        points: all points of the run, in order; none if its process is gone.
        result: with `Order.here`, of a run that is complete.
    """

    key: Hashable
    status: Literal["complete", "stopped", "failed"]
    error: str | None
    summary: dict[str, Any]
    points: tuple[Point, ...] = ()
    result: Result | None = None

    @staticmethod
    def failed(key: Hashable, error: str) -> Ended:
        """Return the end of a run that could not begin, or whose process is gone."""
        return Ended(key, "failed", error, {"status": "failed", "error": error})

    @staticmethod
    def unbegun(key: Hashable, reason: str) -> Ended:
        """Return the end of a run that was stopped before it began."""
        return Ended(key, "stopped", reason, {"status": "partial", "error": reason})


Told: TypeAlias = float | str | Point | Ended
"""About a run under way: the share that is done, a warning, an evaluation, and at last its end."""


class Stopped(KeyboardInterrupt):
    """Ends a run as Ctrl-C does, so that its folder is completed in the same way."""


def carry_out(
    order: Order,
    folder: Path | None,
    tell: Callable[[Told], None],
    stopped: Callable[[], str | None] = lambda: None,
) -> Ended:
    """Run, and tell the progress, the evaluations and the warnings.

    Args:
        folder: for the results, in place of that of the order.
        stopped: returns why the run is to end now; None: it is not.

    Returns:
        The end of the run.
    """
    told = 0.0  # the share done
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
