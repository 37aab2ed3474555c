"""Keys and values of earlier versions that are refused, each with what to use instead."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

_ONE_PACKET: Final = "a TCP connection hides it from programs; use kind: loss, which delays as much"

# By the end of the key's path, without the numbers of list entries; with its value, if only this
# value is gone.
_INSTEAD: Final[Mapping[str, str]] = {
    "sync.kind: adaptive": (
        "no rule was ahead of the best fixed strategy: `outpace advise` finds that one, and "
        "sync_changes or Control change the policy of a run (examples/sync_switch.py)"
    ),
    "sync.kind: specsync": "use asp, or ssp for a bound of staleness",
    "sync.kind: ssptable": (
        "use kind: python with target: benchmarks/papers/fluentps/ssptable.py:SspTable, a file of "
        "the repository, and arguments: {staleness: ..}"
    ),
    "sync.late": (
        "where late workers are to stop, use {kind: cutoff, model: fixed} with `share`, the quorum "
        "as a share of the workers, and `timeout_s`"
    ),
    "sync.enough": "use drop-stragglers with this number as its quorum",
    "barrier": (
        "use sync: {kind: python, arguments: {kind: bsp}} with target: benchmarks/papers/fluentps/"
        "global_barrier.py:behind_barrier, a file of the repository"
    ),
    "executor.kind: fastest": "use kind: auto, or kind: batched if that is faster on your GPU",
    "faults.recovery.server_alone": (
        "after the loss of a server all processes begin again from the last checkpoint: remove it"
    ),
    "on_server_loss: restart-all": "use restart, which starts all processes again",
    **{
        f"faults.{where}.kind: {kind}": _ONE_PACKET
        for where in ("workers", "servers", "schedule")
        for kind in ("duplicate", "reorder")
    },
}
# The configuration of a run folder has all keys. These values were the defaults, and ask for
# nothing that is gone.
_DEFAULTS: Final[Mapping[str, Any]] = {
    "sync.late": "finish",
    "sync.enough": None,
    "barrier": "per-server",
}


def instead_of(path: str, value: Any = None) -> str:
    """Return the error for a key of an earlier version; empty if there was none.

    Args:
        path: of the key, such as `sync_changes[0].sync.late`.
        value: of the key; None: the key is gone with all its values.
    """
    path = _without_numbers(path)
    wanted = path if value is None else f"{path}: {value}"
    for gone, instead in _INSTEAD.items():
        if _ends_with(wanted, gone):
            return f"{gone} was removed: {instead}"
    return ""


def without_former_defaults(data: Any, path: str = "") -> Any:
    """Return plain data without the keys that are gone and had their default: they say nothing.

    path: of the data in the configuration.
    """
    if isinstance(data, list):
        return [without_former_defaults(each, path) for each in data]
    if not isinstance(data, Mapping):
        return data
    places = {key: f"{path}.{key}" if path else str(key) for key in data}
    return {
        key: without_former_defaults(value, places[key])
        for key, value in data.items()
        if not any(
            value == was and _ends_with(places[key], gone) for gone, was in _DEFAULTS.items()
        )
    }


def _without_numbers(path: str) -> str:
    return re.sub(r"\[\d+\]", "", path)


def _ends_with(path: str, key: str) -> bool:
    return path == key or path.endswith(f".{key}")
