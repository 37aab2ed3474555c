"""Shows results in Python in a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_SHOWN: Final = {
    "status": "status",
    "virtual_time_s": "virtual time (s)",
    "wall_time_s": "wall time (s)",
    "gradients_applied": "gradients",
    "staleness.mean": "staleness",
    "seconds.wait": "waiting (s)",
    "train_loss": "training loss",
    "accuracy": "accuracy",
}


def in_words(summary: Mapping[str, Any]) -> str:
    """Return the main numbers of a run in one line."""
    known = {
        **summary,
        "staleness.mean": (summary.get("staleness") or {}).get("mean"),
        "seconds.wait": (summary.get("seconds") or {}).get("wait"),
    }
    return ", ".join(
        f"{title} {value:.4g}" if isinstance(value, float) else f"{title} {value}"
        for key, title in _SHOWN.items()
        if (value := known.get(key)) is not None
    )
