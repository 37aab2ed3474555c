"""Bounds for the numbers of workers and servers of a run, as nodes come and go."""

from __future__ import annotations

from dataclasses import replace

from outpace.config.experiment import Experiment
from outpace.config.launchers import Elastic, Ray
from outpace.errors import ConfigError
from outpace.support.words import plural


def elastic_of(experiment: Experiment) -> Elastic | None:
    """Return the bounds of a run whose processes come and go with the nodes; None: they stay."""
    launcher = experiment.launcher
    return launcher.elastic if isinstance(launcher, Ray) else None


def require_elastic(experiment: Experiment) -> None:
    """Raise ConfigError if `launcher.elastic` asks for what this run cannot do."""
    elastic = elastic_of(experiment)
    if elastic is None:
        return
    if experiment.checkpoint is None:
        raise ConfigError(
            "launcher.elastic: a run begins again from a checkpoint with other numbers of "
            "processes, and this run takes none: add checkpoint.every_s=60"
        )
    if elastic.servers and experiment.peers is not None:
        why = f"{experiment.peers.kind} has none"
        raise ConfigError(f"launcher.elastic.servers: {why}; leave it out")
    for workers in elastic.workers:
        try:
            _with(experiment, workers)
        except (ConfigError, ValueError) as error:
            number = plural(workers, "worker")
            raise ConfigError(
                f"launcher.elastic.workers: the configuration does not fit {number}: {error}"
            ) from None


def _with(experiment: Experiment, workers: int) -> Experiment:
    launcher = experiment.launcher
    assert isinstance(launcher, Ray)
    return replace(experiment, workers=workers, launcher=replace(launcher, elastic=None))
