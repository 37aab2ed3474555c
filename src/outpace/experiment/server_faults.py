"""Failures of servers in configurations of strategies without servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def of_workers(faults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the failures that a strategy without servers can have."""
    left = {key: value for key, value in faults.items() if key != "servers"}
    schedule = left.get("schedule")
    if isinstance(schedule, list):
        left["schedule"] = [
            each for each in schedule if not isinstance(each, Mapping) or "server" not in each
        ]
    return left


def without_servers(data: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a configuration without its failures of servers; None: it has none."""
    faults = data.get("faults")
    if not isinstance(faults, Mapping):
        return None
    left = of_workers(faults)
    return None if left == faults else {**data, "faults": left}
