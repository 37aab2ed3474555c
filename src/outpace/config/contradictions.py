"""Finds values of an `Experiment` that contradict each other.

A strategy lists the keys that it refuses in `excludes`, and a script among the tasks does the same;
`refused` compares an experiment with these lists. The other functions compare several keys.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from outpace.config.goals import Evaluate, Stop
from outpace.config.keys import MACHINES, SERVICE_TIMES
from outpace.config.launchers import Ray
from outpace.sync.python import PythonStrategy
from outpace.tasks import Quadratic, Script, Timing

if TYPE_CHECKING:
    from outpace.config.experiment import Experiment

_LINKS: Final = 10**6  # largest number of pairs of a worker and a server
_OF_WORKERS: Final = "only the law of run times, compute, can have it"
# Parts of laws that only the law of run times can have.
_SERVICE: Final = {
    f"{key}.{part}": _OF_WORKERS
    for key in (*SERVICE_TIMES, "evaluation_time")
    for part in ("errors", "slow", "worker_cv")
}


def contradictions(experiment: Experiment, load: bool) -> Iterator[str]:
    """Yield each contradiction in an experiment, beginning with its key.

    Args:
        load: True: also read the user's files that the experiment names.
    """
    workers, servers = experiment.workers, experiment.servers
    if workers * servers > _LINKS:
        yield (
            f"workers, servers: {workers:,} workers times {servers:,} servers must be at most "
            f"{_LINKS:,}, the messages of one iteration"
        )
        return
    yield from experiment.policies.contradictions(load)
    yield from refused(
        experiment,
        {**_refused_by_task(experiment), **_SERVICE, **experiment.policies.refused_keys(load)},
    )
    yield from _of_the_end(experiment)
    yield from _of_overlap(experiment)
    yield from _of_elastic(experiment)
    if not load and isinstance(experiment.sync, PythonStrategy):
        return  # it is not known whether there are servers
    if experiment.peers is not None and workers == 1:
        yield (
            f"workers: {experiment.peers.kind} needs at least 2 workers, which average among "
            "themselves"
        )
    if experiment.faults is not None and experiment.on_server_loss == "continue":
        yield (
            "on_server_loss: continue is for real runs: in virtual time all servers begin again, "
            "so use restart"
        )
    yield from _of_machines(experiment)


def refused(experiment: Experiment, reasons: Mapping[str, str]) -> Iterator[str]:
    """Yield each of these keys that an experiment gives, with the reason for the refusal."""
    for key, why in reasons.items():
        if key == "sync":
            is_given = isinstance(experiment.sync, tuple)
        else:
            is_given = _is_given(experiment, key.split("."))
        if is_given:
            yield f"{key}: {why}"


def _is_given(section: Any, path: list[str]) -> bool:
    """True if the value at a path is not the default, in a section or in one of several."""
    if isinstance(section, tuple):
        return any(_is_given(each, path) for each in section)
    fields = {} if section is None else {each.name: each for each in dataclasses.fields(section)}
    if path[0] not in fields:
        return False
    value = getattr(section, path[0])
    if path[1:]:
        return _is_given(value, path[1:])
    make = fields[path[0]].default_factory
    usual = fields[path[0]].default if make is dataclasses.MISSING else make()
    return bool(value != usual)


def _refused_by_task(experiment: Experiment) -> dict[str, str]:
    """Return the keys that the task refuses, each with the reason."""
    task = experiment.task
    if isinstance(task, Script):
        return dict(task.excludes)
    found = {
        "evaluation_time": "only a script evaluates its model in a worker's time: remove it",
    }
    if experiment.overlap == "none":
        found["forward_share"] = (
            "only scripts have gradient buckets: remove it, or set overlap: backward"
        )
    if isinstance(task, Timing | Quadratic):
        keys = ("stop.target_accuracy", "target.accuracy")
        found |= dict.fromkeys(keys, f"the task {task.kind!r} has no accuracy")
    if isinstance(task, Timing):
        found["target.loss"] = f"the task {task.kind!r} has no loss"
    return found


def _of_the_end(experiment: Experiment) -> Iterator[str]:
    """Yield the reasons why a run of a task would not end."""
    stop = experiment.stop
    if experiment.has_script:
        return
    if stop == Stop():
        yield "stop: needs at least one of iterations, virtual_time_s, target_accuracy"
    elif stop == Stop(target_accuracy=stop.target_accuracy) and experiment.evaluate == Evaluate():
        yield (
            "stop.target_accuracy alone would never be checked: "
            "set evaluate.every_updates or another stop"
        )


def _of_overlap(experiment: Experiment) -> Iterator[str]:
    """Yield the keys that need the whole gradient before any part of it is pushed.

    Reasons that only the script knows, such as clipping, are found while it runs
    (`engine.scripts.watched`).
    """
    if experiment.overlap == "none":
        return
    if experiment.non_finite != "stop":
        yield (
            "overlap: non_finite: refuse pushes a gradient only if all of it is finite, and parts "
            "leave before that is known: set non_finite: stop"
        )
    if experiment.skip is not None:
        yield "overlap: with skip a worker chooses whether to push when it has the whole gradient"


def _of_elastic(experiment: Experiment) -> Iterator[str]:
    """Yield numbers at the start that are outside of the bounds, and other contradictions."""
    launcher = experiment.launcher
    elastic = launcher.elastic if isinstance(launcher, Ray) else None
    if elastic is None:
        return
    if experiment.on_worker_loss != "restart":
        yield (
            "launcher.elastic: workers that are lost with their node come back where there is "
            f"room, so on_worker_loss must be restart, not {experiment.on_worker_loss}"
        )
    for key in MACHINES:
        bounds, count = getattr(elastic, key), getattr(experiment, key)
        if bounds and not bounds[0] <= count <= bounds[1]:
            yield (
                f"launcher.elastic.{key}: {key}, the number at the start, must be from "
                f"{bounds[0]} to {bounds[1]}, not {count}"
            )


def _of_machines(experiment: Experiment) -> Iterator[str]:
    """Yield an error for each named worker or server outside the run, and for wrong counts."""
    counts = {"worker": experiment.workers, "server": experiment.servers_in_run}
    named = [
        ("compute.slow.workers", "worker", worker)
        for period in getattr(experiment.compute, "slow", ())
        for worker in period.workers
    ]
    for place, fault in enumerate(() if experiment.faults is None else experiment.faults.schedule):
        named += [
            (f"faults.schedule[{place}].{role}", role, number)
            for role in counts
            if (number := getattr(fault, role)) is not None
        ]
    for key, role, number in named:
        if counts[role] and not 0 <= number < counts[role]:
            yield f"{key} must be from 0 to {counts[role] - 1}, not {number}"
    roles = {
        "compute": "worker",
        "evaluation_time": "worker",
        **dict.fromkeys(SERVICE_TIMES, "server"),
    }
    for key, role in roles.items():
        factors = getattr(getattr(experiment, key), "factors", ())
        if counts[role] and factors and len(factors) != counts[role]:
            yield (
                f"{key}.factors must be one for each of the {counts[role]} {role}s, "
                f"not {len(factors)}"
            )
    if experiment.network is not None:
        try:
            experiment.network.require_machines(experiment.machines)
        except ValueError as error:
            yield str(error)
