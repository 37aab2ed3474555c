"""Probabilistic stale synchronous parallel: beyond the bound, pulls are held at random."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from outpace.support.checks import Iterations, Probability
from outpace.sync.decision import Decision, Reason
from outpace.sync.messages import Pull
from outpace.sync.policies.coins import coin_of
from outpace.sync.policy import Apply, Buffer, Scale, ShardView, WirePolicy, bounded


class Coin(StrEnum):
    """The source of the random number that decides about a pull.

    WORKER: one number for all servers, which decide alike if their clocks are equal. SERVER: one
    number for each server, so M servers delay a worker with probability 1 − (1 − P)^M.
    """

    WORKER = "worker"
    SERVER = "server"

    def of(self, pull: Pull, server: int) -> float:
        """Return the number in [0, 1) that decides about this pull at this server."""
        return pull.coin if self is Coin.WORKER else coin_of(pull, server)


class Draw(StrEnum):
    """At which pulls beyond the bound a random number is drawn; the paper can be read both ways.

    Table III compares a random number with P in the pull condition, hence at every pull. Theorem 1
    gives SSP with the bound k the probability c(1 − c)^(k − s): one draw at each lead k.
    """

    PULL = "pull"  # each
    LEAD = "lead"  # pulls with a lead above all leads that passed since a pull was held


@dataclass(frozen=True, slots=True)
class Pssp(WirePolicy):
    """SSP that holds a worker beyond the bound only with probability P.

        # sync: {kind: pssp, staleness: 3, block_probability: 0.3}
        outpace.sync.Pssp(staleness=3, block_probability=0.3)

    FluentPS, table III, with the constant P = c: 0 gives ASP, 1 gives SSP. The regret bound equals
    the bound of SSP with s' = s + 1/c − 1 (theorem 1). A pull in the soft buffer is answered at the
    next clock (algorithm 1), even if its lead is still beyond the bound. Raises ValueError if the
    staleness is negative or the probability outside [0, 1].

    Attributes:
        staleness: s, the lead over the slowest worker below which no pull is held.
        block_probability: c, the probability that a worker beyond the bound waits, in [0, 1].
        draw: pull: draw at every pull beyond the bound. lead: draw only if the lead is higher than
            every lead with which a draw has let the worker pass since a pull of this worker was
            last held.
    """

    staleness: Iterations
    block_probability: Probability
    kind: Literal["pssp"] = "pssp"
    buffer: Buffer = Buffer.LAZY
    coin: Coin = Coin.WORKER
    draw: Draw = Draw.PULL
    apply: Apply = Apply.ON_ARRIVAL
    scale: Scale = Scale.MEAN

    def may_answer(self, pull: Pull, view: ShardView) -> Decision:
        lead = pull.iteration - view.clock
        if lead >= self.staleness and (
            self.coin.of(pull, view.shard) >= self.block_probability
            or (self.draw is Draw.LEAD and lead <= view.spared(pull.worker))
        ):
            return Decision(None, Reason.SPARED, lead, self.staleness)
        hard = self.block_probability == 1  # which is SSP
        return bounded(pull, view, self.staleness, self.buffer, hard=hard)


@dataclass(frozen=True, slots=True)
class DynamicPssp(WirePolicy):
    """PSSP whose probability grows with the lead k = i − V: P = α / (1 + e^(s−k)).

        outpace.sync.DynamicPssp(staleness=3)  # sync: {kind: dynamic-pssp, staleness: 3}

    FluentPS, table III. α: a constant in [0, 1], or the significance |g| / |w| of the
    puller's last gradient on this shard, at most 1.
    Raises ValueError if the staleness is negative or a constant α outside [0, 1].

    Attributes:
        staleness: s, the lead over the slowest worker below which no pull is held.
        alpha: scale of the probability; significance: |g|/|w| of the worker's last gradient.
    """

    staleness: Iterations
    alpha: Probability | Literal["significance"] = 1.0
    kind: Literal["dynamic-pssp"] = "dynamic-pssp"
    buffer: Buffer = Buffer.LAZY
    coin: Coin = Coin.WORKER
    apply: Apply = Apply.ON_ARRIVAL
    scale: Scale = Scale.MEAN

    @property
    def uses_significance(self) -> bool:
        return isinstance(self.alpha, str)

    def probability(self, lead: int, significance: float) -> float:
        """Return the probability that a worker is held.

        Args:
            lead: the worker's iteration minus the clock of the shard.
            significance: the worker's `ShardView.significance`; used for `alpha: significance`.
        """
        if lead < self.staleness:
            return 0.0
        alpha = min(1.0, significance) if isinstance(self.alpha, str) else self.alpha
        return alpha / (1.0 + math.exp(self.staleness - lead))

    def may_answer(self, pull: Pull, view: ShardView) -> Decision:
        lead = pull.iteration - view.clock
        if lead >= self.staleness:
            weight = view.significance(pull.worker) if self.uses_significance else 0.0
            probability = self.probability(lead, weight)
            if self.coin.of(pull, view.shard) >= probability:
                return Decision(None, Reason.SPARED, lead, self.staleness)
        return bounded(pull, view, self.staleness, self.buffer, hard=False)
