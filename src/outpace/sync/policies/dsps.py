"""Dynamic stale synchronous parallel: the bound follows the workers' performance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from outpace.support.checks import Iterations
from outpace.sync.decision import Decision
from outpace.sync.messages import Pull
from outpace.sync.policy import Apply, Buffer, Scale, ShardView, WirePolicy, bounded


@dataclass(frozen=True, slots=True)
class Dsps(WirePolicy):
    """SSP whose bound s(t) moves between `staleness` and `staleness + extra`.

        outpace.sync.Dsps(staleness=3)  # sync: {kind: dsps, staleness: 3}

    FluentPS, table III, leaves the rule open; this is the rule of Zhao et al. (Dynamic Stale
    Synchronous Parallel, ICDCS 2019): a worker that reaches the bound may first do r* more
    iterations if it would then be held for less time. With t the time of the last push and d
    the duration of the last step, for the puller p and a worker q that the clock waits for,

        r* = argmin over r = 0 ... R of  min {h ≥ 0 : h = t_q + j·d_q − (t_p + r·d_p), j ≥ 1}

    and s(t) = max(staleness, min(k + r*, staleness + extra)), where k = i − V is the puller's lead
    and R is the distance from this lead to the upper end of the bound. The bound is computed for
    every pull. The rule minimises the wait until the laggard's next push, so a held pull is
    answered at that push: the buffer is soft by default. With a lazy buffer the wait is longer than
    the rule expects. Raises ValueError if `staleness` or `extra` is negative.

    Attributes:
        staleness: s, the lowest bound.
        extra: how far the bound may grow, in iterations.
    """

    staleness: Iterations
    extra: Annotated[int, Field(ge=0, le=10_000)] = 12
    kind: Literal["dsps"] = "dsps"
    buffer: Buffer = Buffer.SOFT
    apply: Apply = Apply.ON_ARRIVAL
    scale: Scale = Scale.MEAN

    def warnings(self) -> Iterator[str]:
        if self.buffer is Buffer.LAZY and self.extra > 0:
            yield (
                "buffer: lazy holds a pull until the shard has finished the puller's iteration, "
                "and the rule of dsps expects it to be answered at the next clock, so workers "
                "wait longer than the rule expects; use soft"
            )

    def may_answer(self, pull: Pull, view: ShardView) -> Decision:
        lead, bound = pull.iteration - view.clock, self.staleness
        if lead >= bound:
            most = bound + self.extra
            more = _worthwhile(pull.worker, view, most - lead) if lead < most else 0
            bound = max(bound, min(lead + more, most))
        return bounded(pull, view, bound, self.buffer)


def _worthwhile(puller: int, view: ShardView, most: int) -> int:
    """Return r*, the number of further iterations for which the wait is shortest."""
    slow = view.laggard()
    period, start = view.step_time(slow), view.last_push(slow)
    step, pushed = view.step_time(puller), view.last_push(puller)
    if period <= 0 or step <= 0:
        return 0  # one of the step times is not known yet
    best, shortest = 0, None
    for extra in range(most + 1):
        elapsed = pushed + extra * step - start
        behind = max(1, -(-elapsed // period))  # number of the laggard's first push after that time
        held = behind * period - elapsed
        if shortest is None or held < shortest:
            best, shortest = extra, held
    return best
