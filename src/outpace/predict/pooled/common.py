"""The factor that all workers of an iteration share, as log factors on an even grid.

The factor's log is a mixture of normals, whose sizes the network says. It may be a hundred times as
wide as what the times of all workers, once they are known, leave uncertain of it. Points that
follow the mixture would lie too far apart: a worker between two of them would look slow or fast. So
the distance of the points follows the workers: it is twice the standard deviation of the factor
given the times of all of them. Most points have next to no probability once there are times, so
only some are evaluated for every worker: in training those around the most likely factor, later
those that are plausible.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import torch
from torch import Tensor

from outpace.predict.pooled.law import Law, log_parts, posterior
from outpace.predict.pooled.tracks import REAL, reference

_APART: Final = 2.0  # distance of points, in standard deviations of the factor given all times
_NARROWEST: Final = 0.5  # size of a normal, in distances of points: a narrower one could miss all
_AROUND: Final = 2  # points on either side of the factor that the times show
_MOST: Final = 512  # points of a forecast, about
_RARE: Final = 14.0  # below the most probable point by this log probability: left out
_UNLIKELY: Final = 25.0  # the same, given some of the workers
_WORK: Final = 4_000  # points times workers
_FEWEST: Final = 16  # points, however many workers there are
_COARSE: Final = 64  # points that are judged first
_HALF_LOG_TAU: Final = 0.5 * math.log(2.0 * math.pi)


class Factor(NamedTuple):
    """A mixture of C normals for the log factor, relative to the one shift of the law beside it."""

    weight: Tensor  # (..., C), logits
    middle: Tensor  # (..., C)
    size: Tensor  # (..., C), standard deviations

    def log_share(self, points: Tensor, step: Tensor) -> Tensor:
        """Return the log probabilities, shape (..., Q), of points of an even grid.

        `step`, shape (...), is their distance. A normal counts as at least half as wide as it.
        """
        size = torch.maximum(self.size, _NARROWEST * step[..., None])[..., None]
        z = (points[..., None, :] - self.middle[..., None]) / size
        log_weight = self.weight.log_softmax(-1)[..., None] - size.log() - _HALF_LOG_TAU
        return (log_weight - 0.5 * z.square()).logsumexp(-2) + step.log()[..., None]


@torch.no_grad()
def resolution(law: Law, known: Tensor) -> Tensor:
    """Return the distance of points, shape (...), for the workers that are known, (..., J, W)."""
    usual = (law.log_regime.exp()[..., None, :] / law.spread.square()).sum(-1)
    late = law.straggle.sigmoid()
    precision = (1.0 - late) * usual + late / law.delay_spread.square()
    all_workers = (precision * known).sum((-1, -2))
    return torch.where(all_workers > 0.0, _APART * all_workers.rsqrt(), 1.0)


def near(law: Law, factor: Factor, away: Tensor, censored: Tensor, known: Tensor) -> Law:
    """Return the law with the 6 points that matter for these log times, shape (..., J, W).

    Five points lie around the most likely factor, and one in the middle, for changes that are not
    common.
    """
    step = resolution(law, known)
    place = (_most_likely(law, away, censored, known) / step).round()[..., None]
    around = place + torch.arange(-_AROUND, _AROUND + 1)
    points = torch.cat((around, torch.zeros_like(place)), -1) * step[..., None]
    # If all levels rise, the whole grid shows a smaller factor. These few points go down with it,
    # so the gradient is that of the whole grid. Points that stay would pull the levels after them,
    # in each step of a fit, if they tend to lie on one side of the factor.
    usual = _usual(law, known)
    points = points - (usual - usual.detach())[..., None]
    weight = factor.log_share(points, step)
    twice = place.abs() <= _AROUND
    weight = torch.cat((weight[..., :-1], weight[..., -1:].masked_fill(twice, -torch.inf)), -1)
    return law._replace(shift=law.shift + points, log_shift=weight)


def _usual(law: Law, known: Tensor) -> Tensor:
    """Return the mean log time of the workers that are known in their first regime, shape (...)."""
    by_worker = (law.level[..., :1] + law.offset) * known
    return law.shift[..., 0] + by_worker.sum((-1, -2)) / known.sum((-1, -2)).clamp(min=1)


def _most_likely(law: Law, away: Tensor, censored: Tensor, known: Tensor) -> Tensor:
    """Return about the log factor, shape (...), that makes these times the most likely.

    The times show it by their 20 % quantile, which some nodes that change do not move and cut-offs
    after it do not hide. From the distance to the same quantile of what is usual it ascends by one
    step of the EM algorithm, whose hidden variables are regimes, delays and what was cut off.
    """
    law = Law(*(part.detach() for part in law))
    usual = torch.where(known, law.level[..., :1] + law.offset, torch.nan)
    seen = torch.where(known, away, torch.nan)
    moved = reference(seen.flatten(-2)) - reference(usual.flatten(-2)) - law.shift[..., 0]
    moved = moved.nan_to_num(0.0)
    there = known[..., None, None]
    with torch.enable_grad():
        moved.requires_grad_()
        at = law._replace(shift=law.shift + moved[..., None])
        usual, delayed = log_parts(at, torch.where(known, away, 0.0), censored)
        both = torch.logaddexp(usual, delayed)
        joint = (both * there).sum(-3) + law.log_regime[..., None, :]
        (slope,) = torch.autograd.grad(joint.logsumexp(-1).sum(), moved)
    with torch.no_grad():
        late = (delayed - both).exp()
        precision = (1.0 - late) / law.spread[..., None, :].square()
        precision += late / law.delay_spread[..., None, None].square()
        precision *= joint.softmax(-1)[..., None, :, :] * there
        return moved + slope / precision.sum((-1, -2, -3, -4)).clamp(min=1e-6)


def plausible(law: Law, factor: Factor, present: Tensor) -> Law:
    """Return the law of one iteration with all points that are not next to impossible."""
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

    Of many points some workers decide which: at first of cells of points by those in their middle,
    then of single points. If many are left even so, the factor is still uncertain, and fewer will
    do that stand for their neighbours too.
    """
    most = max(_FEWEST, _WORK // present.numel())
    if len(law.shift) <= most:
        return law
    some = _some(present)

    def judged(law: Law) -> Tensor:
        part = Law(
            *(law.shift, law.log_shift),
            *(each[some[0]] for each in (law.level, law.log_regime)),
            *(each[some] for each in law[4:]),
        )
        by_worker = torch.logaddexp(*log_parts(part, away[some], censored[some]))
        return posterior(part, by_worker * present[some][..., None, None])[0]

    cell = -(-len(law.shift) // _COARSE)
    if cell > 1:
        middle = torch.arange(cell // 2, len(law.shift) + cell // 2, cell)
        middle.clamp_(max=len(law.shift) - 1)
        found = judged(law._replace(shift=law.shift[middle], log_shift=law.log_shift[middle]))
        kept = found > found.max() - _UNLIKELY
        law = _only(law, kept.repeat_interleave(cell)[: len(law.shift)])
        if len(law.shift) <= most:
            return law
        law = _fewer(law, law.log_shift, 4 * _COARSE)
    found = judged(law)
    kept = found > found.max() - _UNLIKELY
    return _fewer(_only(law, kept), found[kept], most)


def _some(present: Tensor) -> tuple[slice, slice]:
    """Return the places of at most about 32 workers, of as many nodes as possible."""
    nodes, width = present.shape
    most = _WORK // (2 * _COARSE)
    each = -(-width // max(1, most // nodes))
    return slice(None, None, -(-nodes // most)), slice(None, None, each)


def _only(law: Law, kept: Tensor) -> Law:
    return law._replace(shift=law.shift[kept], log_shift=law.log_shift[kept].log_softmax(-1))


def _fewer(law: Law, found: Tensor, most: int) -> Law:
    """Join neighbours, at their mean by these log probabilities, until at most so many are left."""
    joined = -(-len(found) // most)
    if joined == 1:
        return law
    rest = -len(found) % joined
    weight, found = (
        torch.nn.functional.pad(each, (0, rest), value=-torch.inf).view(-1, joined)
        for each in (law.log_shift, found)
    )
    shift = torch.nn.functional.pad(law.shift, (0, rest)).view(-1, joined)
    return law._replace(shift=(shift * found.softmax(-1)).sum(-1), log_shift=weight.logsumexp(-1))
