"""Whether the workers and servers of a run can join and leave while it goes on."""

from __future__ import annotations

from dataclasses import replace

from outpace.config.experiment import Experiment
from outpace.config.launchers import Elastic, Ray
from outpace.engine.servers import has_scheduler, why_servers_stay
from outpace.errors import ConfigError
from outpace.support.words import plural
from outpace.tasks import Script


def why_workers_stay(experiment: Experiment) -> str:
    """Return why workers cannot join or leave this run; empty if they can."""
    if experiment.peers is not None:
        return f"{experiment.peers.kind} has no servers, and only they have workers join and leave"
    if has_scheduler(experiment):
        return "a scheduler counts on the workers at the start"
    strategy = experiment.policies.strategy
    optimizer = None if isinstance(experiment.task, Script) else experiment.optimizer
    if strategy.worker_program(experiment.workers, optimizer) is not None:
        return f"the workers of {strategy.kind} take steps of their own, for as many workers"
    return ""


def elastic_of(experiment: Experiment) -> Elastic | None:
    """Return the bounds of a run whose processes come and go with the nodes; None: they stay."""
    launcher = experiment.launcher
    return launcher.elastic if isinstance(launcher, Ray) else None


def require_elastic(experiment: Experiment) -> None:
    """Raise ConfigError if `launcher.elastic` asks for what this run cannot do."""
    elastic = elastic_of(experiment)
    if elastic is None:
        return
    if isinstance(experiment.task, Script) and experiment.checkpoint is None:
        raise ConfigError(
            "launcher.elastic: a script whose worker is lost with its node goes on from a "
            "checkpoint, and this run takes none: add checkpoint.every_s=60"
        )
    if elastic.workers:
        if why := why_workers_stay(experiment):
            raise _refused("workers", why)
        for workers in elastic.workers:
            try:
                _with(experiment, workers)
            except (ConfigError, ValueError) as error:
                why = f"the configuration does not fit {plural(workers, 'worker')}: {error}"
                raise _refused("workers", why) from None
    if elastic.servers and (why := why_servers_stay(experiment)):
        raise _refused("servers", why)


def _with(experiment: Experiment, workers: int) -> Experiment:
    launcher = experiment.launcher
    assert isinstance(launcher, Ray)
    return replace(experiment, workers=workers, launcher=replace(launcher, elastic=None))


def _refused(key: str, why: str) -> ConfigError:
    return ConfigError(
        f"launcher.elastic.{key}: the {key} of this run cannot join or leave: {why}. Without "
        f"launcher.elastic.{key} their number stays as it is"
    )
