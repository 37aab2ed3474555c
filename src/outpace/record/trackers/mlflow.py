"""MLflow, through its client: it keeps no run active, and may be called from any thread."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any, Final

from outpace.record.trackers.values import flat, time_of

_AT_ONCE: Final = 500  # metrics in a request; MLflow allows 1,000
_EVERY_S: Final = 1.0
_PARAMETERS: Final = 100  # in a request
_LONGEST: Final = 500  # characters of a parameter
_STATUS: Final = {"complete": "FINISHED", "failed": "FAILED", "partial": "KILLED"}


class MlflowRun:
    """A run of MLflow as a tracker.

    A point is sent within a second of the next one. Its time is the start of the run plus the time
    of the run.

    Args:
        uri: of the tracking server; None: as MLFLOW_TRACKING_URI says.
        began: time of the start, in seconds since 1970.
    """

    def __init__(self, uri: str | None, run: str, began: float) -> None:
        from mlflow import MlflowClient

        self._client, self._run, self._began = MlflowClient(uri), run, began
        self._waiting: list[Any] = []
        self._sent = time.monotonic()

    def config(self, values: dict[str, Any]) -> None:
        from mlflow.entities import Param

        known = [Param(_name(k), str(v)[:_LONGEST]) for k, v in flat(values).items()]
        for first in range(0, len(known), _PARAMETERS):
            self._client.log_batch(self._run, params=known[first : first + _PARAMETERS])

    def log(self, values: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        at_ms = round(1000 * (self._began + time_of(values)))
        self._waiting += [Metric(_name(k), v, at_ms, step) for k, v in values.items()]
        if len(self._waiting) >= _AT_ONCE or time.monotonic() - self._sent >= _EVERY_S:
            self._send()

    def finish(self, status: str) -> None:
        self._send()
        self._client.set_terminated(self._run, _STATUS[status])

    def _send(self) -> None:
        while self._waiting:
            self._client.log_batch(self._run, metrics=self._waiting[:_AT_ONCE])
            del self._waiting[:_AT_ONCE]
        self._sent = time.monotonic()


def _name(name: str) -> str:
    """Return a name with the characters that MLflow allows."""
    return re.sub(r"[^\w\-. /]", "_", name)


def prepare(uri: str | None, experiment: str) -> None:
    """Make the tables of a database and the experiment, unless they exist.

    To be called before several processes begin runs: if two make the tables at once, MLflow
    leaves a database that cannot be used. A server has its tables.
    """
    from mlflow import MlflowClient, get_tracking_uri

    if not (uri or get_tracking_uri()).startswith(("http:", "https:", "databricks")):
        _experiment(MlflowClient(uri), experiment)


def _experiment(client: Any, name: str) -> str:
    """Return the id of an experiment, which is made if it does not exist."""
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            return str(client.create_experiment(name))
        except MlflowException:  # another process has made it in the meantime
            found = client.get_experiment_by_name(name)
            if found is None:
                raise
    return str(found.experiment_id)


def begin(uri: str | None, experiment: str, name: str, tags: Mapping[str, str]) -> MlflowRun:
    """Begin a run in an experiment, which is made if it does not exist."""
    from mlflow import MlflowClient

    client, began = MlflowClient(uri), time.time()
    number = _experiment(client, experiment)
    run = client.create_run(number, round(1000 * began), dict(tags), run_name=name)
    return MlflowRun(uri, run.info.run_id, began)
