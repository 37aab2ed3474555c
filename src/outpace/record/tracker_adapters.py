"""TensorBoard, MLflow, and Weights & Biases as trackers."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any, Final

from outpace.errors import ConfigError
from outpace.record.trackers import Tracker
from outpace.support.yaml_files import write_yaml

_AT_ONCE: Final = 500  # metrics in a request to MLflow, which allows 1,000
_EVERY_S: Final = 1.0
_PARAMETERS: Final = 100  # in a request to MLflow
_LONGEST: Final = 500  # characters of a parameter in MLflow
_MLFLOW: Final = {"complete": "FINISHED", "failed": "FAILED", "partial": "KILLED"}


class TensorBoard:
    """A SummaryWriter of torch.

    The wall time of a point is the start of the run plus the time of the run. TensorBoard's
    horizontal axis *Relative* so is the time of the run, also in virtual time.
    """

    def __init__(self, writer: Any) -> None:
        self._writer, self._began_s = writer, time.time()

    def config(self, values: dict[str, Any]) -> None:
        lines = write_yaml(values).splitlines()
        self._writer.add_text("config.yaml", "\n".join(f"    {line}" for line in lines))

    def log(self, values: dict[str, float], step: int) -> None:
        at_s = self._began_s + _time_s(values)
        for name, value in values.items():
            if not name.endswith("time_s"):
                self._writer.add_scalar(name, value, step, walltime=at_s)

    def finish(self, status: str) -> None:
        self._writer.add_text("status", status)
        self._writer.close()


class Mlflow:
    """A run of MLflow, through its client, which may be called from any thread.

    A point is sent within a second of the next one. Its time is the start of the run plus the time
    of the run.

    Args:
        client: of MLflow.
        run: the id of the run.
    """

    def __init__(self, client: Any, run: str) -> None:
        self._client, self._run, self._began_s = client, run, time.time()
        self._waiting: list[Any] = []
        self._sent_s = time.monotonic()

    def config(self, values: dict[str, Any]) -> None:
        from mlflow.entities import Param

        known = [Param(_mlflow_name(k), str(v)[:_LONGEST]) for k, v in _flat(values).items()]
        for first in range(0, len(known), _PARAMETERS):
            self._client.log_batch(self._run, params=known[first : first + _PARAMETERS])

    def log(self, values: dict[str, float], step: int) -> None:
        from mlflow.entities import Metric

        at_ms = round(1000 * (self._began_s + _time_s(values)))
        self._waiting += [Metric(_mlflow_name(k), v, at_ms, step) for k, v in values.items()]
        if len(self._waiting) >= _AT_ONCE or time.monotonic() - self._sent_s >= _EVERY_S:
            self._send()

    def finish(self, status: str) -> None:
        self._send()
        self._client.set_terminated(self._run, _MLFLOW[status])

    def _send(self) -> None:
        while self._waiting:
            self._client.log_batch(self._run, metrics=self._waiting[:_AT_ONCE])
            del self._waiting[:_AT_ONCE]
        self._sent_s = time.monotonic()


def _mlflow_name(name: str) -> str:
    """Return a name with the characters that MLflow allows."""
    return re.sub(r"[^\w\-. /]", "_", name)


class WandB:
    """A run of Weights & Biases.

    `Run.log` drops a point whose step is lower than the last one, without an error. Steps of a
    tracker always increase, so nothing is dropped.
    """

    def __init__(self, run: Any) -> None:
        self._run = run

    def config(self, values: dict[str, Any]) -> None:
        self._run.config.update(values)

    def log(self, values: dict[str, float], step: int) -> None:
        self._run.log(values, step=step)

    def finish(self, status: str) -> None:
        self._run.finish(exit_code=0 if status == "complete" else 1)


def as_tracker(given: Any) -> Tracker:
    """Return an object as a tracker: as it is, or behind one that calls its own methods.

    Known are objects with the methods of `Tracker`, torch's SummaryWriter, and the runs that
    `wandb.init` and `mlflow.start_run` return.

    Raises:
        ConfigError: if the object is none of these.
    """
    if _has(given, "config", "log", "finish"):
        tracker: Tracker = given
        return tracker
    if _has(given, "add_scalar", "add_text", "close"):
        return TensorBoard(given)
    if _has(given, "log", "finish") and _has(getattr(given, "config", None), "update"):
        return WandB(given)
    if isinstance(run := getattr(getattr(given, "info", None), "run_id", None), str):
        from mlflow import MlflowClient

        return Mlflow(MlflowClient(), run)
    raise ConfigError(
        f"tracker: a {type(given).__name__} is no tracker that Outpace knows: give an object with "
        "the methods config(values), log(values, step) and finish(status), a SummaryWriter, or a "
        "run of wandb or mlflow"
    )


def _has(given: object, *names: str) -> bool:
    return not isinstance(given, type) and all(callable(getattr(given, n, None)) for n in names)


def _flat(values: Mapping[str, Any], before: str = "") -> dict[str, bool | int | float | str]:
    """Return nested plain data with names such as `sync.kind`; lists and None become text."""
    found: dict[str, bool | int | float | str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{before}{key}.")
        else:
            plain = isinstance(value, bool | int | float | str)
            found[f"{before}{key}"] = value if plain else str(value)
    return found


def _time_s(values: Mapping[str, float]) -> float:
    """Return the time of the run of a point, which may be that of a single worker."""
    return next((value for name, value in values.items() if name.endswith("time_s")), 0.0)
