"""The interface of experiment trackers, and objects of other libraries, taken as they are."""

from __future__ import annotations

import time
from typing import Any, Final, Protocol, runtime_checkable

from outpace.errors import ConfigError
from outpace.record.trackers.mlflow import MlflowRun
from outpace.record.trackers.tensorboard import Writer
from outpace.record.trackers.values import flat
from outpace.record.trackers.wandb import WandbRun

_ENDED: Final = {"complete": "success", "failed": "failed", "partial": "aborted"}  # in Lightning


@runtime_checkable
class Tracker(Protocol):
    """Keeps the configuration and the curves of one run."""

    def config(self, values: dict[str, Any], /) -> None:
        """Take the configuration of the run: nested plain data. Called once, at the start."""

    def log(self, values: dict[str, float], step: int, /) -> None:
        """Take a point of the run.

        Args:
            values: by name. `time_s` is the time of the run.
            step: greater than that of the point before.
        """

    def finish(self, status: str, /) -> None:
        """The run has ended. status: `complete`, `partial` or `failed`, as in summary.json."""


def as_tracker(given: Any) -> Tracker:
    """Return an object as a tracker: as it is, or behind one that calls its own methods.

    Known are objects with the methods of `Tracker`, trackers of accelerate, loggers of Lightning,
    torch's SummaryWriter, and the runs that `wandb.init` and `mlflow.start_run` return.

    Raises:
        ConfigError: if the object is none of these.
    """
    if _has(given, "config", "log", "finish"):
        tracker: Tracker = given
        return tracker
    if _has(given, "store_init_configuration", "log", "finish"):
        return _OfAccelerate(given)
    if _has(given, "log_hyperparams", "log_metrics", "finalize"):
        return _OfLightning(given)
    if _has(given, "add_scalar", "add_text", "close"):
        return Writer(given)
    if _has(given, "log", "finish") and _has(getattr(given, "config", None), "update"):
        return WandbRun(given)
    if isinstance(run := getattr(getattr(given, "info", None), "run_id", None), str):
        return MlflowRun(None, run, time.time())
    raise ConfigError(
        f"tracker: a {type(given).__name__} is no tracker that Outpace knows: give an object with "
        "the methods config(values), log(values, step) and finish(status), a tracker of "
        "accelerate, a logger of Lightning, a SummaryWriter, or a run of wandb or mlflow"
    )


def _has(given: object, *names: str) -> bool:
    return not isinstance(given, type) and all(callable(getattr(given, n, None)) for n in names)


class _OfAccelerate:
    """A `GeneralTracker` of accelerate. It is started unless it has been."""

    def __init__(self, given: Any) -> None:
        self._given = given

    def config(self, values: dict[str, Any]) -> None:
        if not hasattr(self._given, "tracker"):
            self._given.start()
        self._given.store_init_configuration(flat(values))

    def log(self, values: dict[str, float], step: int) -> None:
        self._given.log(values, step=step)

    def finish(self, status: str) -> None:
        self._given.finish()


class _OfLightning:
    """A `Logger` of Lightning."""

    def __init__(self, given: Any) -> None:
        self._given = given

    def config(self, values: dict[str, Any]) -> None:
        self._given.log_hyperparams(values)

    def log(self, values: dict[str, float], step: int) -> None:
        self._given.log_metrics(values, step=step)

    def finish(self, status: str) -> None:
        self._given.save()
        self._given.finalize(_ENDED[status])
