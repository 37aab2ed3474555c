"""Partial push: waits for a quorum of workers, then a limited time for the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outpace.support.checks import NotNegative
from outpace.sync.policies.drop_stragglers import Quorum
from outpace.sync.policy import Apply, Scale, ShardView, quorum_arrived


@dataclass(frozen=True, slots=True)
class PartialPush(Quorum):
    """Advances when all workers have pushed V, or τ1 seconds after c of them have (PSP-SGD).

        # sync: {kind: partial-push, quorum: 14, timeout_s: 0.05}
        outpace.sync.PartialPush(quorum=14, timeout_s=0.05)

    Later gradients are dropped. The paper's step is η times the sum: `scale: sum`. The gradient of
    a worker that has skipped V counts in the iteration it belongs to; line 10 of the paper would
    add it to V.

    Args:
        quorum: c, at least 1.
        quorum_percent: c as a share of the workers; in place of `quorum`.
        timeout_s: τ1, in seconds.

    Raises:
        ValueError: if the quorum is out of range, or not given exactly once, or the timeout is
            negative.
    """

    timeout_s: NotNegative = 0.0
    kind: Literal["partial-push"] = "partial-push"
    apply: Apply = Apply.ON_ADVANCE
    scale: Scale = Scale.MEAN

    def patience_s(self, view: ShardView) -> float:
        return quorum_arrived(view, self.number, self.timeout_s)
