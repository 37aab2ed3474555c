"""Partial push: waits for a quorum of workers, then a limited time for the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from outpace.support.checks import require
from outpace.sync.policies.drop_stragglers import Quorum
from outpace.sync.policy import Apply, Scale, ShardView, quorum_arrived


@dataclass(frozen=True, slots=True)
class PartialPush(Quorum):
    """Advances when all workers have pushed V, or τ1 seconds after c of them have (PSP-SGD).

    Later gradients are dropped. The paper's step is η times the sum: `scale: sum`. A worker that
    has skipped V counts in its own iteration; the paper's line 10 would add its gradient to V.

    Args:
        quorum: c, at least 1.
        quorum_percent: c as a share of the workers; in place of `quorum`.
        late: see `Quorum`.
        timeout_s: τ1, in seconds.
        enough: number of workers whose pushes end the iteration at once, in place of all; at least
            c. Not in the paper.

    Raises:
        ValueError: if the quorum is out of range, or not given exactly once, or the timeout is
            negative.
    """

    timeout_s: float = 0.0
    enough: int | None = None
    kind: Literal["partial-push"] = "partial-push"
    apply: Apply = Apply.ON_ADVANCE
    scale: Scale = Scale.MEAN

    def __post_init__(self) -> None:
        Quorum.__post_init__(self)
        require(0 <= self.timeout_s <= 1e9, "timeout_s", "from 0 to 1e9", self.timeout_s)

    def problems(self, workers: int) -> Iterator[str]:
        yield from Quorum.problems(self, workers)
        if self.enough is None:
            return
        least = self.for_workers(workers).quorum or 1
        if not least <= self.enough <= workers:
            yield (
                f"enough must be from {least}, the quorum, to {workers}, the number of workers, "
                f"not {self.enough}"
            )

    def patience_s(self, view: ShardView) -> float:
        if self.enough is not None and view.pushed >= self.enough:
            return 0.0
        return quorum_arrived(view, self.number, self.timeout_s)
