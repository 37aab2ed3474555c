"""The cost of a run's failures: how often each kind happened, and what took time."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from outpace.cluster.faults import KINDS, FaultKind
from outpace.support.units import Time, seconds

CAUSES: Final = ("detection", "restart", "repeated", "standing", "checkpoints")
_KEPT: Final = ("counts", "lost", "worker_losses", "server_losses")


@dataclass(slots=True)
class Costs:
    """Counts of failures, and lost time by its cause, in ns summed over workers.

    detection: until the death of a process was known. restart: until its successor began.
    repeated: for work that had been done and was done again. standing: workers that stood still.
    checkpoints: servers stood still to take them; once for each worker, because all wait for it.
    """

    workers: int
    counts: dict[str, int] = field(default_factory=dict)
    lost: dict[str, Time] = field(default_factory=lambda: dict.fromkeys(CAUSES, 0))
    worker_losses: int = 0
    server_losses: int = 0
    goodput: float | None = None

    def happened(self, kind: FaultKind) -> None:
        """Count a failure that hit a process."""
        self.counts[kind] = self.counts.get(kind, 0) + 1

    def add(self, cause: str, duration: Time, workers: int = 1) -> None:
        """Add time (ns) that so many workers lost."""
        self.lost[cause] += max(0, duration) * workers

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs to go on from here, as plain data."""
        found = asdict(self)
        return {key: found[key] for key in _KEPT}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state of a run that was resumed; an empty one has nothing."""
        for key, value in state.items():
            if key in _KEPT:
                setattr(self, key, copy(value))

    def summary(self) -> dict[str, Any]:
        """Return the part of summary.json about the costs; seconds are means per worker."""
        return {
            "happened": {kind: self.counts.get(kind, 0) for kind in KINDS},
            "worker_losses": self.worker_losses,
            "server_losses": self.server_losses,
            "lost_s": {cause: seconds(time) / self.workers for cause, time in self.lost.items()},
            "goodput": self.goodput,
        }
