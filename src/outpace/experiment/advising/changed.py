"""Changes of the cluster under which the finalists are looked at again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from outpace.config.cluster_files import DRAW, INCLUDE, included
from outpace.experiment.advising.problem import Problem

_Data: TypeAlias = dict[str, Any]


def worse_stragglers(data: _Data) -> _Data:
    """Return the data with twice the spread and twice the slowdowns of the run times.

    `cv` and `worker_cv` are doubled; a factor f becomes 1 + 2 (f - 1), at least 0.1.
    """
    law = dict(data.get("compute") or {})
    if not law:
        return data
    law |= {key: 2 * law[key] for key in ("cv", "worker_cv") if law.get(key)}
    if law.get("factors"):
        law["factors"] = [_twice(factor) for factor in law["factors"]]
    for key in ("slow", "regimes"):
        if law.get(key):
            law[key] = [{**each, "factor": _twice(each["factor"])} for each in law[key]]
    return {**data, "compute": law}


def slower_network(data: _Data) -> _Data:
    """Return the data with twice the latencies and half the bandwidths of the network."""
    return {key: _slower(value) if key == "network" else value for key, value in data.items()}


def more_workers(data: _Data) -> _Data:
    """Return the data with twice the workers, which are as fast as those that there are."""
    data = {**data, "workers": 2 * data["workers"]}
    law = data.get("compute")
    if isinstance(law, Mapping) and law.get("factors"):
        data["compute"] = {**law, "factors": [*law["factors"], *law["factors"]]}
    return data


CHANGES: Final[tuple[tuple[str, Callable[[_Data], _Data]], ...]] = (
    ("stragglers twice as bad", worse_stragglers),
    ("network half as fast", slower_network),
    ("twice the workers", more_workers),
)


def changed(problem: Problem, change: Callable[[_Data], _Data]) -> Problem | None:
    """Return the problem on a changed cluster; None if it has nothing to change in this way."""
    source = problem.source
    own, _ = included(source.data, source.name, source.folder or Path.cwd())
    # The keys of cluster files are written into the configuration.
    data = {key: value for key, value in own.items() if key not in (INCLUDE, DRAW)}
    found = change(data)
    return None if found == data else problem.changed(found)


def _twice(factor: float) -> float:
    return max(0.1, 1 + 2 * (factor - 1))


def _slower(law: Any) -> Any:
    """Return a part of the network with twice the latencies and half the bandwidths."""
    if isinstance(law, list):
        return [_slower(each) for each in law]
    if not isinstance(law, Mapping):
        return law
    changed = {key: _slower(value) for key, value in law.items()}
    for key, factor in (("latency_s", 2.0), ("bandwidth_bytes_per_s", 0.5)):
        if isinstance(law.get(key), int | float):
            changed[key] = factor * law[key]
    return changed
