"""The law of the run times of one iteration given the past: an explicit finite mixture.

The logarithm of worker n's time, on node j, relative to the last iteration's reference, is

    shift_q + level_jk + offset_n                 + spread_nk · ε   with probability 1 - straggle_n
    shift_q + level_jk + offset_n + delay_n       + delay_spread_n · ε         else

with ε standard normal. The shift q is the same for the whole cluster, and the regime k is the same
for all workers of a node. Given shift and regimes, all workers are independent. So the likelihood
is, without approximation, a sum over shifts of products over nodes of sums over regimes of products
over workers:

    p(y) = Σ_q p_q Π_j Σ_k p_jk Π_n p(y_n | q, k)

A worker that is only known to take longer contributes the probability of a longer time.

**The shift** is the log factor that all workers of an iteration share, on an even grid. Its law is
a mixture of normals, whose sizes the network predicts. The mixture may be a hundred times as wide
as the remaining uncertainty of the shift once the times of all workers are known. Points that
follow the mixture would be too far apart: a worker between two of them would look slow or fast. So
the distance of the points is twice the standard deviation of the factor given the times of all
workers. Most points have almost no probability once there are times, so only some points are
evaluated for every worker: in training the points around the most likely factor, later the
plausible points.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, pad

from outpace.predict.pooled.tracks import REAL, reference

_HALF_LOG_TAU: Final = 0.5 * math.log(2.0 * math.pi)
_APART: Final = 2.0  # distance of points, in standard deviations of the factor given all times
_NARROWEST: Final = 0.5  # size of a normal, in distances of points: a narrower one could miss all
_AROUND: Final = 2  # number of points on either side of the factor that the times show
_MOST: Final = 512  # approximate number of points of a forecast
# difference in log probability from the most probable point beyond which a point is left out
_RARE: Final = 14.0
_UNLIKELY: Final = 25.0  # the same, given some of the workers
_WORK: Final = 4_000  # points times workers
_FEWEST: Final = 16  # least number of points, for any number of workers
_JUDGES: Final = 32  # approximate number of workers that are first used to judge all points
_COARSE: Final = 64  # number of cells of points that are judged first


class Law(NamedTuple):
    """Q shifts, J nodes with W workers, K regimes; leading dimensions are independent laws."""

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

    The densities include the probability of a delay. For censored times they are the log
    probability of a longer time. `away` has the log times relative to the reference, shape (..., J,
    W); the results have shape (..., J, W, Q, K).
    """
    middle = law.shift[..., None, None, :, None] + law.level[..., None, None, :]
    rest = (away - law.offset)[..., None, None] - middle
    straggle = law.straggle[..., None, None]
    usual = logsigmoid(-straggle) + _log_normal(rest, law.spread[..., None, :], censored)
    late = rest - law.delay[..., None, None]
    delayed = logsigmoid(straggle) + _log_normal(late, law.delay_spread[..., None, None], censored)
    return usual, delayed


def _log_normal(rest: Tensor, spread: Tensor, censored: Tensor) -> Tensor:
    """Return the log density of N(0, spread²) at `rest`; if censored, the log tail above it."""
    z = rest / spread
    found = -0.5 * z.square() - spread.log() - _HALF_LOG_TAU
    if censored.any():  # the tail is needed only there, and it costs more than everything else
        found[censored] = torch.special.log_ndtr(-z[censored])
    return found


def log_likelihood(law: Law, away: Tensor, censored: Tensor, known: Tensor) -> Tensor:
    """Return the joint log likelihood of log times, shape (...), without unknown workers."""
    usual, delayed = log_parts(law, torch.where(known, away, 0.0), censored)
    by_worker = torch.logaddexp(usual, delayed) * known[..., None, None]
    by_shift, _ = _accumulated(law, by_worker)
    return by_shift.logsumexp(-1)


def posterior(law: Law, by_worker: Tensor) -> tuple[Tensor, Tensor]:
    """Return log probabilities of the shifts (Q,), and of the regimes given the shift (J, Q, K).

    by_worker: log likelihoods, shape (J, W, Q, K); 0 for places without a worker.
    """
    by_shift, joint = _accumulated(law, by_worker)
    return by_shift.log_softmax(-1), joint.log_softmax(-1)


def _accumulated(law: Law, by_worker: Tensor) -> tuple[Tensor, Tensor]:
    """Return log likelihoods by shift, and for nodes also with the prior of the regimes."""
    joint = by_worker.sum(-3) + law.log_regime[..., None, :]
    return joint.logsumexp(-1).sum(-2) + law.log_shift, joint


class Factor(NamedTuple):
    """A mixture of C normals for the log factor, relative to the one shift of the law with it."""

    weight: Tensor  # (..., C), logits
    middle: Tensor  # (..., C)
    size: Tensor  # (..., C), standard deviations

    def log_share(self, points: Tensor, step: Tensor) -> Tensor:
        """Return the log probabilities, shape (..., Q), of points of an even grid.

        step: distance of the points, shape (...). The width of a normal counts as at least half of
        it.
        """
        size = torch.maximum(self.size, _NARROWEST * step[..., None])[..., None]
        z = (points[..., None, :] - self.middle[..., None]) / size
        log_weight = self.weight.log_softmax(-1)[..., None] - size.log() - _HALF_LOG_TAU
        return (log_weight - 0.5 * z.square()).logsumexp(-2) + step.log()[..., None]


@torch.no_grad()
def resolution(law: Law, known: Tensor) -> Tensor:
    """Return the distance of points, shape (...), for the known workers, (..., J, W)."""
    usual = (law.log_regime.exp()[..., None, :] / law.spread.square()).sum(-1)
    late = law.straggle.sigmoid()
    precision = (1.0 - late) * usual + late / law.delay_spread.square()
    all_workers = (precision * known).sum((-1, -2))
    return torch.where(all_workers > 0.0, _APART * all_workers.rsqrt(), 1.0)


def near(law: Law, factor: Factor, away: Tensor, censored: Tensor, known: Tensor) -> Law:
    """Return the law with the 6 points that matter for these log times, shape (..., J, W).

    Five points are around the most likely factor; one point is in the middle, for changes that are
    not common to all workers.
    """
    step = resolution(law, known)
    place = (_most_likely(law, away, censored, known) / step).round()[..., None]
    around = place + torch.arange(-_AROUND, _AROUND + 1)
    points = torch.cat((around, torch.zeros_like(place)), -1) * step[..., None]
    # If all levels rise, the whole grid shows a smaller factor. These few points move down with it,
    # so that the gradient is the same as for the whole grid. If the points did not move and were
    # mostly on one side of the factor, they would pull the levels towards them in each step of a
    # fit.
    by_worker = (law.level[..., :1] + law.offset) * known
    usual = law.shift[..., 0] + by_worker.sum((-1, -2)) / known.sum((-1, -2)).clamp(min=1)
    points = points - (usual - usual.detach())[..., None]
    weight = factor.log_share(points, step)
    twice = place.abs() <= _AROUND
    weight = torch.cat((weight[..., :-1], weight[..., -1:].masked_fill(twice, -torch.inf)), -1)
    return law._replace(shift=law.shift + points, log_shift=weight)


def _most_likely(law: Law, away: Tensor, censored: Tensor, known: Tensor) -> Tensor:
    """Return approximately the log factor, shape (...), that makes these times the most likely.

    The first estimate is the 20 % quantile of the times compared with the usual quantile: it is not
    moved by changes of some nodes, nor hidden by later cut-offs. One step of the EM algorithm then
    improves it; the hidden variables are regimes, delays and the times that were cut off.
    """
    law = Law(*(part.detach() for part in law))
    usual = torch.where(known, law.level[..., :1] + law.offset, torch.nan)
    seen = torch.where(known, away, torch.nan)
    moved = reference(seen.flatten(-2)) - reference(usual.flatten(-2)) - law.shift[..., 0]
    moved = moved.nan_to_num(0.0).requires_grad_()
    at = law._replace(shift=law.shift + moved[..., None])
    on_time, delayed = log_parts(at, torch.where(known, away, 0.0), censored)
    both = torch.logaddexp(on_time, delayed)
    there = known[..., None, None]
    joint = (both * there).sum(-3) + law.log_regime[..., None, :]
    (slope,) = torch.autograd.grad(joint.logsumexp(-1).sum(), moved)
    with torch.no_grad():
        late = (delayed - both).exp()
        precision = (1.0 - late) / law.spread[..., None, :].square()
        precision += late / law.delay_spread[..., None, None].square()
        precision *= joint.softmax(-1)[..., None, :, :] * there
        return moved + slope / precision.sum((-1, -2, -3, -4)).clamp(min=1e-6)


def plausible(law: Law, factor: Factor, present: Tensor) -> Law:
    """Return the law of one iteration with all points that are not almost impossible."""
    below = factor.weight - factor.weight.max() + _RARE
    far = factor.size * (2.0 * below.clamp(min=0.0)).sqrt()
    low = float((factor.middle - far)[below >= 0.0].min())
    high = float((factor.middle + far)[below >= 0.0].max())
    step = max(float(resolution(law, present)), (high - low) / _MOST)
    points = torch.arange(math.floor(low / step), math.ceil(high / step) + 1, dtype=REAL) * step
    weight = factor.log_share(points, torch.tensor(step, dtype=REAL)).log_softmax(-1)
    return law._replace(shift=law.shift + points, log_shift=weight)


def likely(law: Law, away: Tensor, censored: Tensor, present: Tensor) -> Law:
    """Return the law of one iteration with the points that matter given these log times.

    If there are many points, the times of some workers select them: first cells of points, judged
    by the points in their middle, then single points. If many points remain, the factor is still
    uncertain, and neighbouring points are joined at their mean.
    """
    most = max(_FEWEST, _WORK // present.numel())
    if len(law.shift) <= most:
        return law
    nodes, width = present.shape
    by_node = slice(None, None, -(-nodes // _JUDGES))
    some = by_node, slice(None, None, -(-width // max(1, _JUDGES // nodes)))

    def judged(points: Tensor) -> Tensor:
        part = Law(
            *(law.shift[points], law.log_shift[points]),
            *(each[by_node] for each in (law.level, law.log_regime)),
            *(each[some] for each in law[4:]),
        )
        by_worker = torch.logaddexp(*log_parts(part, away[some], censored[some]))
        return posterior(part, by_worker * present[some][..., None, None])[0]

    points = torch.arange(len(law.shift))
    cell = -(-len(points) // _COARSE)
    for step in (cell, 1):
        middle = torch.arange(step // 2, len(points) + step // 2, step).clamp(max=len(points) - 1)
        found = judged(points[middle])
        kept = found > found.max() - _UNLIKELY
        points = points[kept.repeat_interleave(step)[: len(points)]]
    joined = -(-len(points) // most)
    shift, before, given = (
        pad(each, (0, -len(points) % joined), value=-torch.inf).view(-1, joined)
        for each in (law.shift[points], law.log_shift[points].log_softmax(-1), found[kept])
    )
    mean = (shift.clamp(min=law.shift[0]) * given.softmax(-1)).sum(-1)
    return law._replace(shift=mean, log_shift=before.logsumexp(-1))
