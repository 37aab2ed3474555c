"""Speculative synchronization: workers begin a step again when their parameters have become old."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from outpace.support.checks import positive, reject, require
from outpace.sync.decision import Decision, Reason
from outpace.sync.messages import Pull
from outpace.sync.policies.ssp import require_staleness
from outpace.sync.policy import Apply, Buffer, Scale, ShardView, WirePolicy, bounded
from outpace.sync.programs.freshness import Speculation, Window

_EPOCH: Final = 8
_MOST_PUSHES: Final = 1000
_ONE: Final = "with specsync one scheduler decides for all servers and the whole run"
_OWN: Final = "specsync has workers of its own, which pull from all servers after each gradient"


@dataclass(frozen=True, slots=True)
class SpecSync(WirePolicy):
    """Answers pulls as ASP or SSP do; a scheduler has workers begin a step again.

    Zhang, Tian, Wang and Yan, Stay Fresh: Speculative Synchronization for Fast Distributed Machine
    Learning (ICDCS 2018). A worker that computes abandons its step if, in the `abort_time_s` since
    it began, the other workers have pushed `abort_rate` times as many gradients as there are
    workers. It pulls again and computes the step anew, on the same batch; a step is abandoned once
    at most. The programs are in `programs.speculating`, the choice of both numbers is in
    `programs.freshness`; these files say what is taken from the paper and what is not.

    Args:
        abort_time_s: length of the window; None, with `abort_rate`: chosen after each epoch.
        abort_rate: gradients in the window per worker of the run.
        epoch_pushes: pushes per worker after which both are chosen anew.
        base: the strategy whose pull condition holds.
        staleness: with `ssp`, the iterations that a worker may lead the slowest.
        buffer: with `ssp`, when a held pull is answered.

    Raises:
        ValueError: for values out of range, and keys that do not belong together.
    """

    abort_time_s: float | None = None
    abort_rate: float | None = None
    epoch_pushes: int = _EPOCH
    base: Literal["asp", "ssp"] = "asp"
    staleness: int | None = None
    kind: Literal["specsync"] = "specsync"
    buffer: Buffer = Buffer.LAZY
    apply: Apply = Apply.ON_ARRIVAL
    scale: Scale = Scale.MEAN

    everywhere: ClassVar[str] = _ONE
    tasks_only: ClassVar[str] = (
        "specsync computes a step again on the same batch, and the loop of a script goes on with "
        "the next one: take asp or ssp"
    )
    excludes: ClassVar[Mapping[str, str]] = {
        "sync": _ONE,
        "sync_changes": _ONE,
        "pull": _OWN,
        "skip": _OWN,
        "overlap": "with specsync a step may begin again when parts of its gradient have left",
        "barrier": "with specsync workers do not wait for each other at a barrier",
        "conditions": "with specsync a worker that begins a step again must be answered at once",
    }

    def __post_init__(self) -> None:
        time_s, rate = self.abort_time_s, self.abort_rate
        if (time_s is None) != (rate is None):
            reject(
                "abort_time_s, abort_rate: give both, or neither: then they are chosen in the run"
            )
        if time_s is not None:
            require(positive(time_s), "abort_time_s", "above 0 and at most 1e9", time_s)
        if rate is not None:
            require(positive(rate), "abort_rate", "above 0 and at most 1e9", rate)
        pushes, enough = self.epoch_pushes, f"from 1 to {_MOST_PUSHES}"
        require(1 <= pushes <= _MOST_PUSHES, "epoch_pushes", enough, pushes)
        if time_s is not None and pushes != _EPOCH:
            reject("epoch_pushes: abort_time_s and abort_rate are given, so nothing is chosen")
        require(self.base in ("asp", "ssp"), "base", "asp or ssp", self.base)
        if self.base == "ssp" and self.staleness is None:
            reject("staleness: base: ssp needs the iterations that a worker may lead the slowest")
        elif self.base == "asp" and (self.staleness is not None or self.buffer is not Buffer.LAZY):
            reject("staleness, buffer: with base: asp no worker waits; set base: ssp")
        if self.staleness is not None:
            require_staleness(self.staleness)

    @property
    def speculation(self) -> Speculation:
        fixed = None
        if self.abort_time_s is not None and self.abort_rate is not None:
            fixed = Window(self.abort_time_s, self.abort_rate)
        return Speculation(fixed, self.epoch_pushes)

    def may_answer(self, pull: Pull, view: ShardView) -> Decision:
        if self.staleness is None:
            return Decision(None, Reason.UNBOUNDED, pull.iteration - view.clock)
        return bounded(pull, view, self.staleness, self.buffer)
