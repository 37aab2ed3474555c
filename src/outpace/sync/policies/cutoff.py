"""Predicted cut-offs (BDSGD): a scheduler ends each iteration for all servers at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal

from outpace.blocks.narrowing import Wire
from outpace.predict.rules.settings import WARM_UP, CutOffSettings
from outpace.support.checks import require
from outpace.sync.decision import Decision
from outpace.sync.messages import Pull
from outpace.sync.policy import Apply, Policy, Scale, ShardView, bounded

_AT_ONCE: Final = "with cutoff the scheduler ends iterations for all servers at once"


@dataclass(frozen=True, slots=True)
class CutOff(CutOffSettings, Policy):
    """Answers i < V, and advances when all gradients that count for iteration V are in.

        # sync: {kind: cutoff, model: last-5, warmup: 5}
        outpace.sync.CutOff(model="last-5", warmup=5)

    The scheduler (`programs.cutoff`) decides which gradients count: it is told which workers
    have finished, closes the iteration, and makes the other workers stop computing. A rule of
    `predict.rules`, made from the settings, decides how long the scheduler waits.

    Attributes:
        wire: precision in which gradients and parameters are sent; the same in all policies of a
            run, including the policies of `sync_changes`.
    """

    kind: Literal["cutoff"] = "cutoff"
    scale: Scale = Scale.MEAN
    # not in a base class: only one base class may have slots
    wire: Wire = field(default="full", kw_only=True)

    lockstep: ClassVar[bool] = True

    apply: ClassVar[Apply] = Apply.ON_ADVANCE
    everywhere: ClassVar[str] = _AT_ONCE
    excludes: ClassVar[Mapping[str, str]] = {
        "conditions": _AT_ONCE,
        "skip.pull": (
            "with cutoff all workers compute the same iteration, so none may begin the next one "
            "without an answer"
        ),
        "overlap": (
            "with cutoff a worker that is cut off pushes nothing, and parts of its gradient could "
            "have left"
        ),
    }

    def __post_init__(self) -> None:
        CutOffSettings.__post_init__(self)
        enough = f"at least {WARM_UP}: {self.model} is fitted to it, unless there is a file"
        too_few = self.fitted_to_all and self.iterations_for_all < WARM_UP
        require(not too_few, "warmup", enough, self.warmup)

    @property
    def cut_off(self) -> CutOffSettings:
        return self

    def may_answer(self, pull: Pull, view: ShardView) -> Decision:
        return bounded(pull, view, 0)

    def patience_s(self, view: ShardView) -> float:
        return 0.0 if view.awaited == 0 else math.inf
