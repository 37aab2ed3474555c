"""The law of the run times of one iteration given the past: an explicit finite mixture.

The logarithm of worker n's time, on node j, relative to the last iteration's reference, is

    shift_q + level_jk + offset_n                 + spread_nk · ε   with probability 1 - straggle_n
    shift_q + level_jk + offset_n + delay_n       + delay_spread_n · ε         else

with ε standard normal. The shift q is one for the whole cluster, the regime k one for all
workers of a node. Given those all are independent, so the likelihood is a sum over shifts of
products over nodes of sums over regimes of products over workers, without approximation:

    p(y) = Σ_q p_q Π_j Σ_k p_jk Π_n p(y_n | q, k)

A worker that is only known to take longer contributes the probability of that.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

_HALF_LOG_TAU: Final = 0.5 * math.log(2.0 * math.pi)
_FAR: Final = 5.0  # beyond it the leading terms of the normal tail are precise enough


class Law(NamedTuple):
    """Q shifts, J nodes of W workers, K regimes; leading dimensions are independent laws."""

    shift: Tensor  # (..., Q)
    log_shift: Tensor  # (..., Q), log probabilities
    level: Tensor  # (..., J, K)
    log_regime: Tensor  # (..., J, K), log probabilities
    offset: Tensor  # (..., J, W)
    spread: Tensor  # (..., J, W, K)
    delay: Tensor  # (..., J, W)
    delay_spread: Tensor  # (..., J, W)
    straggle: Tensor  # (..., J, W), logits


def log_parts(law: Law, away: Tensor, censored: Tensor) -> tuple[Tensor, Tensor]:
    """Return the log densities of each worker's time by shift and regime, without and with a delay.

    They include the probability of a delay. Where censored: the log probability of more.
    `away`, log times relative to the reference, has shape (..., J, W), the results
    (..., J, W, Q, K).
    """
    middle = law.shift[..., None, None, :, None] + law.level[..., None, None, :]
    rest = (away - law.offset)[..., None, None] - middle
    more = censored[..., None, None]
    straggle = law.straggle[..., None, None]
    log_of = torch.nn.functional.logsigmoid
    usual = log_of(-straggle) + _log_normal(rest, law.spread[..., None, :], more)
    late = rest - law.delay[..., None, None]
    delayed = log_of(straggle) + _log_normal(late, law.delay_spread[..., None, None], more)
    return usual, delayed


def log_likelihood(law: Law, away: Tensor, censored: Tensor, known: Tensor) -> Tensor:
    """Return the joint log likelihood of log times, shape (...), without unknown workers."""
    usual, delayed = log_parts(law, torch.where(known, away, 0.0), censored)
    by_worker = torch.logaddexp(usual, delayed) * known[..., None, None]
    by_shift, _ = _accumulated(law, by_worker.sum(-3))
    return by_shift.logsumexp(-1)


def posterior(law: Law, by_worker: Tensor) -> tuple[Tensor, Tensor]:
    """Return log probabilities of the shifts (Q,), and of the regimes given the shift (J, Q, K).

    by_worker: Log likelihoods, shape (J, W, Q, K), 0 for places without a worker.
    """
    by_shift, joint = _accumulated(law, by_worker.sum(-3))
    return by_shift.log_softmax(-1), joint.log_softmax(-1)


def _accumulated(law: Law, by_node: Tensor) -> tuple[Tensor, Tensor]:
    """Return log likelihoods by shift, and of nodes with the prior of the regimes."""
    joint = by_node + law.log_regime[..., None, :]
    return joint.logsumexp(-1).sum(-2) + law.log_shift, joint


def _log_normal(rest: Tensor, spread: Tensor, more: Tensor) -> Tensor:
    """Return the log density of N(0, spread²) at `rest`; where `more`, the log tail above it."""
    found: Tensor = _LogNormal.apply(rest, spread, more)  # type: ignore[no-untyped-call]
    return found


class _LogNormal(torch.autograd.Function):
    """`_log_normal` with its derivatives in a few calls, where torch would make forty."""

    @staticmethod
    def forward(ctx: Any, rest: Tensor, spread: Tensor, more: Tensor) -> Tensor:
        z = rest / spread
        density = z.square().mul_(-0.5).sub_(_HALF_LOG_TAU).sub_(spread.log())
        found = torch.where(more, log_above(z), density)
        ctx.save_for_backward(z, spread, more, found)
        return found

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        z, spread, more, found = ctx.saved_tensors
        # By z: -z for the density, and for the tail minus the hazard rate φ(z) / Φ(-z).
        hazard = z.square().mul_(-0.5).sub_(_HALF_LOG_TAU).sub_(found).exp_()
        fall = torch.where(more, hazard, z)
        scaled = gradients[0] / spread
        by_spread = (fall * z).add_(more).sub_(1.0).mul_(scaled)
        return fall.mul_(scaled).neg_(), by_spread.sum_to_size(spread.shape), None


def log_above(z: Tensor) -> Tensor:
    """Return the log probability that a standard normal is greater than z, to 3e-4."""
    near = (0.5 * torch.special.erfc(z.clamp(max=_FAR) * math.sqrt(0.5))).log()
    far = z.clamp(min=_FAR)
    series = torch.log1p(-1.0 / (far.square() + 3.0))  # of x Φ(-x) / φ(x), to 3e-4 at 5
    beyond = -0.5 * far.square() - far.log() - _HALF_LOG_TAU + series
    return torch.where(z > _FAR, beyond, near)
