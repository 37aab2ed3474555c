"""Makes the trackers of a run: those of its configuration, and objects that the user gives."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from outpace.config.experiment import Experiment
from outpace.config.trackers import Mlflow, TensorBoard, TrackerKind, Wandb
from outpace.errors import ConfigError
from outpace.record.trackers import mlflow, tensorboard, wandb
from outpace.record.trackers.feeding import Beside, Trackers
from outpace.record.trackers.tracker import Tracker, as_tracker

_PACKAGES: Final = {"tensorboard": "tensorboard", "mlflow": "mlflow", "wandb": "wandb"}


@dataclass(frozen=True, slots=True)
class Tracking:
    """How trackers call a run, and the trackers that the user gave for it."""

    name: str
    given: tuple[tuple[str, Tracker], ...] = ()

    @staticmethod
    def of(tracker: Any, out: Path | None) -> Tracking:
        """Return what the argument `tracker` of `simulate` and `run` means.

        Args:
            tracker: an object or a list of objects, see `as_tracker`; a Tracking; or None.
            out: the run's folder, which names the run.

        Raises:
            ConfigError: if an object is no tracker.
        """
        if isinstance(tracker, Tracking):
            return tracker
        several = tracker if isinstance(tracker, list | tuple) else [tracker]
        given = [(type(each).__name__, as_tracker(each)) for each in several if each is not None]
        return Tracking("run" if out is None else out.absolute().name, tuple(given))


def require_usable(experiment: Experiment) -> None:
    """Raise ConfigError if a tracker of the configuration lacks its package or an account."""
    for place, tracker in enumerate(experiment.trackers):
        package = _PACKAGES[tracker.kind]
        if find_spec(package) is None:
            raise ConfigError(
                f"trackers[{place}]: the kind {tracker.kind} needs the package {package}, which is "
                f"not installed: pip install {package}"
            )
        if isinstance(tracker, Wandb) and not wandb.is_logged_in(tracker.mode):
            raise ConfigError(
                f"trackers[{place}]: Weights & Biases knows no account here: run `wandb login`, "
                "set WANDB_API_KEY, or set mode: offline"
            )


def prepare(experiments: Iterable[Experiment]) -> None:
    """Do what the trackers of runs must not do in several processes at the same time."""
    trackers = [tracker for experiment in experiments for tracker in experiment.trackers]
    wanted = {(t.tracking_uri, t.experiment) for t in trackers if isinstance(t, Mlflow)}
    for uri, name in wanted:
        with contextlib.suppress(Exception):  # the trackers of the runs fail too, and say why
            mlflow.prepare(uri, name)


def trackers_of(
    experiment: Experiment, tracking: Tracking, out: Path | None, warn: Callable[[str], None]
) -> Trackers:
    """Return the trackers of a run; those of the configuration begin their run with `config`.

    Args:
        out: the run's folder.
        warn: called with a warning for each tracker that fails.
    """
    made = [
        (tracker.kind, Beside(tracker.kind, _begins(tracker, tracking.name, out)))
        for tracker in experiment.trackers
    ]
    return Trackers([*made, *tracking.given], warn)


def _begins(tracker: TrackerKind, name: str, out: Path | None) -> Callable[[], Tracker]:
    def begin() -> Tracker:
        if isinstance(tracker, TensorBoard):
            own = Path("runs") / name if out is None else out / "tensorboard"
            return tensorboard.begin(own if tracker.folder is None else Path(tracker.folder) / name)
        if isinstance(tracker, Mlflow):
            return mlflow.begin(tracker.tracking_uri, tracker.experiment, name, tracker.tags)
        return wandb.begin(
            tracker.project,
            tracker.entity,
            tracker.group,
            tracker.mode,
            tracker.tags,
            name,
            out if tracker.folder is None else Path(tracker.folder),
        )

    return begin
