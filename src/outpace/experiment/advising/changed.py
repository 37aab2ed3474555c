"""Changes of the cluster under which advice is looked at again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outpace.config.cluster_files import DRAW, INCLUDE, included
from outpace.errors import ConfigError
from outpace.experiment.advising.problem import Problem


@dataclass(frozen=True, slots=True)
class Scenario:
    """A changed cluster.

    Attributes:
        name: in words.
        problem: None if the configuration cannot be changed in this way.
        reason: why it cannot.
    """

    name: str
    problem: Problem | None
    reason: str = ""


def scenarios(problem: Problem) -> list[Scenario]:
    """Return the changed clusters: worse stragglers, a slower network, more workers."""
    return [
        _changed("stragglers twice as bad", problem, worse_stragglers, "compute"),
        _changed("network half as fast", problem, slower_network, "network"),
        _more_workers(problem),
    ]


def worse_stragglers(law: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a law of run times with twice the spread and twice the slowdowns.

    `cv` and `worker_cv` are doubled; a factor f becomes 1 + 2 (f - 1), at least 0.1. None if the
    law has neither.
    """
    found: dict[str, Any] = dict(law)
    for key in ("cv", "worker_cv"):
        if isinstance(law.get(key), int | float):
            found[key] = 2 * law[key]
    if law.get("factors"):
        found["factors"] = [_twice(factor) for factor in law["factors"]]
    for key in ("slow", "regimes"):
        if law.get(key):
            found[key] = [
                {**each, "factor": _twice(each["factor"])} if "factor" in each else each
                for each in law[key]
            ]
    return None if found == dict(law) else found


def slower_network(law: Mapping[str, Any]) -> dict[str, Any]:
    """Return a network with twice the latencies and half the bandwidths."""
    found: dict[str, Any] = {}
    for key, value in law.items():
        if key == "latency_s" and isinstance(value, int | float):
            found[key] = 2 * value
        elif key == "bandwidth_bytes_per_s" and isinstance(value, int | float):
            found[key] = value / 2
        elif isinstance(value, Mapping):
            found[key] = slower_network(value)
        elif isinstance(value, list):
            found[key] = [slower_network(v) if isinstance(v, Mapping) else v for v in value]
        else:
            found[key] = value
    return found


def _twice(factor: float) -> float:
    return max(0.1, 1 + 2 * (factor - 1))


def _changed(name: str, problem: Problem, change: Any, key: str) -> Scenario:
    """Return the problem with one key of its cluster changed."""
    source = problem.source
    own, _ = included(source.data, source.name, source.folder or Path.cwd())
    law = own.get(key)
    if not isinstance(law, Mapping):
        return Scenario(name, None, f"the configuration has no {key}")
    law = change(law)
    if law is None:
        return Scenario(name, None, f"{key} has nothing that could be changed in this way")
    # Written into the configuration, whose own keys win over those of a cluster file.
    data = {k: v for k, v in own.items() if k not in (INCLUDE, DRAW)}
    return _made(name, problem, {**data, key: law})


def _more_workers(problem: Problem) -> Scenario:
    name = "twice the workers"
    data = dict(problem.data)
    data["workers"] = 2 * problem.workers
    compute = data.get("compute")
    if isinstance(compute, Mapping) and compute.get("factors"):
        data["compute"] = {**compute, "factors": [*compute["factors"], *compute["factors"]]}
    return _made(name, problem, data)


def _made(name: str, problem: Problem, data: dict[str, Any]) -> Scenario:
    try:
        return Scenario(name, problem.changed(data))
    except ConfigError as error:
        return Scenario(name, None, str(error).splitlines()[0])
