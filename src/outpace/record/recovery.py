"""Interruptions and restarts of a run, for its summary."""

from __future__ import annotations

from typing import Any

import msgspec


class Recovery(msgspec.Struct, kw_only=True):
    """The counts of a run over all its sessions.

    Attributes:
        restarts: processes that were brought back; all of them at once count as one.
        updates_lost: iterations of workers whose gradient is not in the result of all servers,
            although the worker had sent it, or could not send it any more.
        resumed_from: the checkpoint of the last resume, below the folder of the run.
        without: workers that were lost, and without which the run continued.
        scalings: the numbers of workers and servers that the run continued with.
    """

    restarts: int = 0
    updates_lost: int = 0
    resumed_from: str | None = None
    without: list[int] = []
    scalings: list[tuple[int, int]] = []

    def summary(self) -> dict[str, Any]:
        """Return the part of summary.json about failures."""
        return {
            "restarts": self.restarts,
            "updates_lost": self.updates_lost,
            "resumed_from": self.resumed_from,
            "scalings": [list(numbers) for numbers in self.scalings],
        }
