"""Values of points and configurations in the form that trackers take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def flat(values: Mapping[str, Any], before: str = "") -> dict[str, bool | int | float | str]:
    """Return nested plain data with names such as `sync.kind`; lists and None become text."""
    found: dict[str, bool | int | float | str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{before}{key}.")
        else:
            plain = isinstance(value, bool | int | float | str)
            found[f"{before}{key}"] = value if plain else str(value)
    return found


def is_time(name: str) -> bool:
    """True for the time of a point, also that of a single worker."""
    return name.rpartition("/")[2] == "time_s"


def time_of(values: Mapping[str, float]) -> float:
    """Return the time of the run (s) of a point."""
    return next((value for name, value in values.items() if is_time(name)), 0.0)
