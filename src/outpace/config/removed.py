"""Keys and values of earlier configurations that are gone, each with what to use instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_KEYS: Final[Mapping[str, str]] = {
    "faults.recovery.server_alone": (
        "after the loss of a server all processes begin again from the last checkpoint: remove it"
    ),
}
_VALUES: Final[Mapping[tuple[str, str], str]] = {
    ("on_server_loss", "restart-all"): "use restart, which starts all processes again",
}


def why_removed(path: str, value: Any) -> str:
    """Return what to use instead of a key, or of this value of it; empty if it is not gone.

    Args:
        path: the key with those of the sections around it.
    """
    if path in _KEYS:
        return f"{path} is gone: {_KEYS[path]}"
    if isinstance(value, str) and (path, value) in _VALUES:
        return f"{path}: {value} is gone: {_VALUES[path, value]}"
    return ""
