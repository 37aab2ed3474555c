"""The values of summary.json that commands work with: their types and limits.

A folder may come from a stranger, or from another version of Outpace.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import msgspec

_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
_Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
_Value: TypeAlias = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]


class _Best(msgspec.Struct):
    value: _Value
    time_s: _Seconds


class _Summary(msgspec.Struct):
    """Values that are missing are not used."""

    status: str | None = None
    error: str | None = None
    virtual_time_s: _Seconds | None = None
    wall_time_s: _Seconds | None = None
    iterations: list[_Count] | None = None
    gradients_applied: _Count | None = None
    restarts: _Count | None = None
    updates_lost: int | None = None
    scalings: list[tuple[_Count, _Count]] | None = None
    resumed_from: str | None = None
    best: dict[str, _Best | None] | None = None
    servers: list[dict[str, Any]] | None = None
    nodes: dict[str, str] | None = None
    overlap_fraction: _Value | None = None
    scheduler_shard: _Count | None = None
    lockstep: bool | None = None
    exchanges: bool | None = None


def problem_in(summary: Mapping[str, Any]) -> str:
    """Return what is wrong in a summary, with its key; empty if nothing is."""
    try:
        msgspec.convert(summary, _Summary)
    except (msgspec.ValidationError, OverflowError) as error:
        words, _, key = str(error).partition(" - at `$.")
        return f"{key.removesuffix('`') or 'a number'}: {words}"
    return ""
