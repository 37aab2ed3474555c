"""Makes the trackers of a run: those of its configuration, and objects that the user gives."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from outpace.config.experiment import Experiment
from outpace.config.trackers import Mlflow, TensorBoard, TrackerKind, Wandb
from outpace.errors import ConfigError
from outpace.record import tracker_adapters as adapters
from outpace.record.trackers import ThreadedTracker, Tracker, Trackers


def require_usable(experiment: Experiment) -> None:
    """Raise ConfigError if a tracker of the configuration lacks its package or an account."""
    for place, tracker in enumerate(experiment.trackers):
        if find_spec(tracker.kind) is None:
            raise ConfigError(
                f"trackers[{place}]: the package {tracker.kind} is not installed: pip install "
                f"{tracker.kind}"
            )
        if isinstance(tracker, Wandb):
            import wandb

            is_online = (tracker.mode or os.environ.get("WANDB_MODE", "online")) == "online"
            if is_online and not wandb.login(prompt=False, verify=False):
                raise ConfigError(
                    f"trackers[{place}]: Weights & Biases knows no account here: run "
                    "`wandb login`, set WANDB_API_KEY, or set mode: offline"
                )


def prepare(experiments: Iterable[Experiment]) -> None:
    """Make the experiments of MLflow, before several processes begin runs.

    If two make the tables of a database at once, MLflow leaves one that cannot be used.
    """
    trackers = [tracker for experiment in experiments for tracker in experiment.trackers]
    for each in {(t.tracking_uri, t.experiment) for t in trackers if isinstance(t, Mlflow)}:
        with contextlib.suppress(Exception):  # the trackers of the runs fail too, and say why
            _mlflow_experiment(*each)


def trackers_of(
    experiment: Experiment, given: Any, name: str, out: Path | None, warn: Callable[[str], None]
) -> Trackers:
    """Return the trackers of a run; those of the configuration begin their run with `config`.

    Args:
        given: the argument `tracker` of `simulate` and `run`: an object or a list of objects, see
            `as_tracker`; or None.
        name: of the run; empty: that of its folder.
        out: the run's folder.
        warn: called with a warning for each tracker that fails.

    Raises:
        ConfigError: if an object is no tracker.
    """
    name = name or ("run" if out is None else out.absolute().name)
    several = given if isinstance(given, list | tuple) else [given]
    objects = [
        (type(each).__name__, adapters.as_tracker(each)) for each in several if each is not None
    ]
    made = [
        (each.kind, ThreadedTracker(each.kind, partial(_begin, each, name, out)))
        for each in experiment.trackers
    ]
    return Trackers([*made, *objects], warn)


def _begin(tracker: TrackerKind, name: str, out: Path | None) -> Tracker:
    """Begin a run of this name in a tracker."""
    if isinstance(tracker, TensorBoard):
        from torch.utils.tensorboard import SummaryWriter  # slow, and it needs a package

        own = Path("runs") / name if out is None else out / "tensorboard"
        folder = own if tracker.folder is None else Path(tracker.folder) / name
        return adapters.TensorBoard(SummaryWriter(str(folder)))
    if isinstance(tracker, Mlflow):
        client, number = _mlflow_experiment(tracker.tracking_uri, tracker.experiment)
        began_ms = round(1000 * time.time())
        run = client.create_run(number, began_ms, dict(tracker.tags), run_name=name)
        return adapters.Mlflow(client, run.info.run_id)
    import wandb

    made = wandb.init(
        project=tracker.project,
        entity=tracker.entity,
        group=tracker.group,
        mode=tracker.mode,
        tags=tuple(tracker.tags),
        name=name,
        id=secrets.token_hex(4),  # not from the random numbers of the training
        dir=tracker.folder or out,
        reinit="create_new",  # several runs in a process
        settings=wandb.Settings(silent=True, console="off"),
    )
    return adapters.WandB(made)


def _mlflow_experiment(uri: str | None, name: str) -> tuple[Any, str]:
    """Return MLflow's client and the id of an experiment, which is made if it does not exist."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    found = client.get_experiment_by_name(name)
    return client, str(client.create_experiment(name) if found is None else found.experiment_id)
