"""Runs of the script `scripts/ledger_of_pushes.py`, whose parameters count its gradients."""

from __future__ import annotations

from typing import Any, Final

import torch
from tests.support.paths import SCRIPTS

WORKERS: Final = 2


def config(steps: int, *does: str, **changes: Any) -> dict[str, Any]:
    """Return the configuration of a run of two workers with two servers.

    Args:
        steps: of each worker.
        does: what else the script does; see there.
    """
    return {
        "task": {
            "kind": "script",
            "path": str(SCRIPTS / "ledger_of_pushes.py"),
            "arguments": [str(WORKERS * steps), *does],
        },
        "workers": WORKERS,
        "servers": 2,
        "sync": {"kind": "asp"},
        "probe": False,
        "compute": {"kind": "constant", "mean_s": 0.02},
        "checkpoint": {"every_s": 0.3},
        **changes,
    }


def counts(result: Any) -> torch.Tensor:
    """Return how often each gradient is in the result, at each server."""
    entries = result.parameters
    found = torch.stack([entries["first"], entries["second"]]) * -WORKERS
    return found.round(decimals=3)


def require_counted(result: Any) -> None:
    """Raise AssertionError if a gradient counts twice, or what is missing is not counted."""
    found, summary = counts(result), result.summary
    assert set(found.unique().tolist()) <= {0.0, 1.0}
    assert int((found == 0).any(dim=0).sum()) == summary["updates_lost"]
    assert summary["status"] == "complete"
