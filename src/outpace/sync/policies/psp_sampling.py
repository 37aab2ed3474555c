"""Probabilistic synchronous parallel: a barrier on a random sample of the workers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from outpace.support.checks import Iterations, Number
from outpace.sync.decision import ASK_AGAIN, Decision, Reason
from outpace.sync.messages import Pull
from outpace.sync.policies.coins import sample_of
from outpace.sync.policy import Apply, Policy, Scale, ShardView, WirePolicy


@dataclass(frozen=True, slots=True)
class PspSampling(WirePolicy):
    """Answers iteration i while i < V' + s, where V' is the clock of β random other workers.

        # sync: {kind: psp-sampling, sample: 3, staleness: 3}
        outpace.sync.PspSampling(sample=3, staleness=3)

    Wang, Catterall and Mortier, Probabilistic Synchronous Parallel (2017): s = 0 is their pBSP, s >
    0 is their pSSP. An empty sample gives ASP, and a sample of all other workers gives SSP with a
    soft buffer. The sample is drawn once per pull and is the same for all servers. Workers in the
    sample that have left are ignored. Raises ValueError if `sample` or `staleness` is negative.

    Attributes:
        sample: β, the number of other workers that are drawn.
        staleness: s, the iterations that a worker may lead the sampled workers.
    """

    sample: Number
    staleness: Iterations = 0
    kind: Literal["psp-sampling"] = "psp-sampling"
    apply: Apply = Apply.ON_ARRIVAL
    scale: Scale = Scale.MEAN

    def problems(self, workers: int) -> Iterator[str]:
        yield from Policy.problems(self, workers)
        others = workers - 1
        if self.sample > others:
            yield f"sample must be at most {others}, the number of other workers, not {self.sample}"

    def may_answer(self, pull: Pull, view: ShardView) -> Decision:
        slowest, behind = pull.iteration, -1
        for worker in sample_of(pull, self.sample, view.workers):
            if view.progress(worker) < slowest and view.is_live(worker):
                slowest, behind = view.progress(worker), worker
        lead = pull.iteration - slowest - 1
        if behind < 0 or lead < self.staleness:
            return Decision(None, Reason.WITHIN_BOUND, lead, self.staleness)
        return Decision(ASK_AGAIN, Reason.BEYOND_BOUND, lead, self.staleness, behind)
