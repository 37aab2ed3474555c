"""Makes experiments from a user's arguments: a file, plain data or an Experiment, and changes."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from outpace.config.cluster_files import DRAW, INCLUDE, with_cluster
from outpace.config.experiment import Experiment
from outpace.config.reading import experiment_from, plain, to_plain
from outpace.errors import ConfigError
from outpace.support.yaml_files import merged, read_yaml
from outpace.tasks import GivenTask, MakeTask, Script, Task, TaskKind, Timing

ExperimentLike: TypeAlias = Experiment | Mapping[str, Any] | str | Path
# number of evaluations of a run until its `stop`, if the configuration has no interval
_POINTS: Final = 40
TaskLike: TypeAlias = Task | MakeTask | TaskKind | Mapping[str, Any]


class Source(NamedTuple):
    """Plain data of a configuration.

    Attributes:
        name: name of the data in errors.
        folder: the folder that paths in the data are relative to; None: the current one.
        given: the task that replaces a task of kind `given` in the data.
    """

    data: dict[str, Any]
    name: str
    folder: Path | None
    given: GivenTask | None

    def experiment(self) -> Experiment:
        """Return the experiment of one run. Raises ConfigError with all errors in the data."""
        data = as_one_run(self.data, self.name)
        return self.with_given(experiment_from(data, self.name, self.folder))

    def with_given(self, experiment: Experiment) -> Experiment:
        """Return the experiment with the given task, if the experiment itself names no task."""
        if self.given is None or not isinstance(experiment.task, GivenTask):
            return experiment
        return dataclasses.replace(experiment, task=self.given)


def as_experiment(
    experiment: ExperimentLike,
    task: TaskLike | None = None,
    changes: Mapping[str, Any] | None = None,
    *,
    for_real: Callable[[str], None] | None = None,
) -> Experiment:
    """Return an Experiment, made from plain data or a YAML file if necessary.

    Args:
        task, changes: see `simulate`.
        for_real: called, for a real run, with a line if the experiment includes a cluster file,
            which a real run ignores.

    Raises:
        ConfigError: with all errors in the data.
    """
    if isinstance(experiment, Experiment) and task is None and not changes:
        return experiment
    if for_real is None:
        return source_of(experiment, task, changes or {}).experiment()
    changes = without_include(changes or {}, for_real)
    source = source_of(experiment, task, changes)
    return source._replace(data=without_include(source.data, for_real)).experiment()


def without_include(data: Mapping[str, Any], log: Callable[[str], None]) -> dict[str, Any]:
    """Return the data for a real run, which ignores cluster files; log a line if there is one."""
    if data.get(INCLUDE) is not None:
        log(f"{INCLUDE} is ignored: a real run takes the times of its machines and its network")
    return {key: value for key, value in data.items() if key not in (INCLUDE, DRAW)}


def source_of(
    experiment: ExperimentLike | Source, task: TaskLike | None, changes: Mapping[str, Any]
) -> Source:
    """Return the changed data of an experiment, or of a comparison. Raises ConfigError."""
    given, folder = None, None
    if isinstance(experiment, Source):
        data, name, folder, given = experiment
    elif isinstance(experiment, Experiment):
        data, name = to_plain(experiment), "the experiment"
        given = experiment.task if isinstance(experiment.task, GivenTask) else None
    elif isinstance(experiment, Mapping):
        data, name = dict(experiment), "the configuration"
    elif not isinstance(experiment, str | os.PathLike):
        raise ConfigError(
            f"give an Experiment, a mapping or the path of a YAML file, not {experiment!r}"
        )
    else:
        path = Path(experiment)
        data, name, folder = read_yaml(path), str(path), path.parent
    if changes.get(INCLUDE) is not None:
        changes = dict(changes)
        data = with_cluster(data, changes.pop(INCLUDE))
    if task is not None:
        changes = {**changes, "task": task}
    for key, value in changes.items():
        if key == "task" and not _is_plain_task(value):
            given = GivenTask.of(value)
            value = given
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            data[key] = plain(dataclasses.asdict(value))
        else:
            data = merged(data, {key: value})
    return Source(data, name, folder, given)


def with_target(
    data: Mapping[str, Any], accuracy: float | None, loss: float | None
) -> dict[str, Any]:
    """Return the data with this target, if one is given, instead of their present target."""
    target = {"accuracy": accuracy, "loss": loss}
    given = {key: value for key, value in target.items() if value is not None}
    return {**data, "target": given} if given else dict(data)


def _is_plain_task(task: object) -> bool:
    """True for a mapping, and for a task as a configuration names it."""
    is_kind = dataclasses.is_dataclass(task) and not isinstance(task, type | Task)
    return isinstance(task, Mapping) or (is_kind and hasattr(task, "kind"))


def as_one_run(data: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return the data of one run; with `variants: []`, the data of a comparison without variants.

    Raises ConfigError if there are variants or seeds to compare.
    """
    data = dict(data)
    if "variants" in data and data["variants"] == []:
        data = {key: value for key, value in data.items() if key not in ("variants", "seeds")}
    if "variants" in data:
        raise ConfigError(
            f"{source} has variants: use outpace compare {source}, or set variants=[] to run the "
            "experiment once, without them"
        )
    if "seeds" in data:
        raise ConfigError(f"{source}: seeds: only outpace compare runs several seeds; leave it out")
    return data


def interval_of(iterations: int | None, virtual_time_s: float | None) -> dict[str, Any]:
    """Return the part of `evaluate` that makes about 40 evaluations; empty without a limit.

    Args:
        iterations, virtual_time_s: limits of the run, as in `stop`. A run with servers that update
            at each gradient has as many evaluations for each of its workers.
    """
    if iterations:
        return {"every_updates": max(1, iterations // _POINTS)}
    if virtual_time_s:
        return {"every_s": max(1e-6, virtual_time_s / _POINTS)}
    return {}


def with_interval(experiment: Experiment) -> Experiment:
    """Return the experiment, evaluated during the run if it has a target.

    The interval of the configuration is kept. A script is not evaluated, because it logs its
    values.
    """
    evaluate, stop = experiment.evaluate, experiment.stop
    if evaluate.every_updates is not None or evaluate.every_s is not None:
        return experiment
    if experiment.goal is None or isinstance(experiment.task, Script | Timing):
        return experiment
    found = interval_of(stop.iterations, stop.virtual_time_s)
    return dataclasses.replace(experiment, evaluate=dataclasses.replace(evaluate, **found))
