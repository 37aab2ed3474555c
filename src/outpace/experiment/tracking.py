"""Makes the trackers of a run: those of its configuration, and objects that the user gives."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from outpace.config.experiment import Experiment
from outpace.record.trackers import Tracker, Trackers, require_tracker
from outpace.support.user_code import load_target


def require_usable(experiment: Experiment) -> None:
    """Raise ConfigError if the function of a tracker of the configuration cannot be imported."""
    for place, target in enumerate(experiment.trackers):
        load_target(target, f"trackers[{place}]")


def trackers_of(
    experiment: Experiment, given: Any, name: str, out: Path | None, warn: Callable[[str], None]
) -> Trackers:
    """Return the trackers of a run.

    Args:
        given: the argument `tracker` of `simulate` and `run`: an object with the methods of
            `Tracker`, a list of objects, or None.
        name: of the run; empty: that of its folder.
        out: the run's folder.
        warn: called with a warning for each tracker that fails.

    Raises:
        ConfigError: if an object is no tracker.
    """
    name = name or ("run" if out is None else out.absolute().name)
    several = given if isinstance(given, list | tuple) else [given]
    objects = [require_tracker(each) for each in several if each is not None]
    makers = [(target, partial(_made, target, name, out)) for target in experiment.trackers]
    given_makers = [(type(each).__name__, partial(require_tracker, each)) for each in objects]
    return Trackers([*makers, *given_makers], warn)


def _made(target: str, name: str, out: Path | None) -> Tracker:
    return require_tracker(load_target(target, "trackers")(name, out))
