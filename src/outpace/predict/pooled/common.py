"""The factor that all workers of an iteration share, as log factors on a fine, even grid.

A common factor may be twenty times as wide as the spread of the workers, so points that follow
its distribution would lie too far apart: a worker between two of them would look slow or fast.
The points of this grid are one spread apart, wherever the factor is. Most have next to no
probability, a posteriori at the latest, so only some are evaluated for every worker: in training
those around the factor that the times show, later those that are plausible.
"""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import Tensor

from outpace.predict.pooled.law import Law, log_parts, posterior
from outpace.predict.pooled.tracks import reference

_MOST: Final = 256  # points on either side of the middle, at most
_AROUND: Final = 2  # points on either side of the factor that the times show
_MIDDLE: Final = 1  # points on either side of the middle, besides these
_RARE: Final = 14.0  # below the most probable point by this log probability: left out
_UNLIKELY: Final = 25.0  # the same, given some of the workers
_WORK: Final = 4_000  # points times workers
_FEWEST: Final = 16  # points, and workers, however many there are of the other


def grid(noise: float, reach: float) -> Tensor:
    """Return the log factors, shape (Q,), even and symmetric, about `noise` apart up to `reach`."""
    step = max(noise, reach / _MOST)
    count = math.ceil(reach / step)
    return torch.arange(-count, count + 1) * step


def log_mixture(points: Tensor, weight: Tensor, middle: Tensor, size: Tensor) -> Tensor:
    """Return log probabilities of the points, shape (..., Q), under a mixture of normals.

    Weights are logits. They, middles and sizes have shape (..., C). Each normal is divided among
    the points, so one that is much narrower than the grid has all its weight on the nearest point.
    """
    z = (points - middle[..., None]) / size[..., None]
    each = (-0.5 * z.square()).log_softmax(-1)
    return (weight.log_softmax(-1)[..., None] + each).logsumexp(-2)


def near(law: Law, away: Tensor, known: Tensor) -> Law:
    """Return the law with the 8 points that matter for these log times, shape (..., J, W).

    The times show the factor by their 20 % quantile, which some nodes that change do not move
    and cut-offs after it do not hide: five points lie around its distance from the same quantile
    of what is usual. The three in the middle stand for changes that are not common.
    """
    usual = torch.where(known, law.level[..., :1] + law.offset, torch.nan)
    seen = torch.where(known, away, torch.nan)
    moved = reference(seen.flatten(-2)) - reference(usual.flatten(-2))
    last = law.shift.shape[-1] - 1
    step = law.shift[..., 1] - law.shift[..., 0]
    place = ((moved - law.shift[..., 0]) / step).nan_to_num(last / 2.0).round().long()
    place = place.clamp(_AROUND, last - _AROUND)[..., None]
    around = place + torch.arange(-_AROUND, _AROUND + 1)
    middle = last // 2 + torch.arange(-_MIDDLE, _MIDDLE + 1).expand(*place.shape[:-1], -1)
    twice = (middle - place).abs() <= _AROUND
    chosen = torch.cat((around, middle), -1)
    weight = law.log_shift.gather(-1, chosen)
    twice = torch.cat((torch.zeros_like(around, dtype=torch.bool), twice), -1)
    return law._replace(
        shift=law.shift.gather(-1, chosen), log_shift=weight.masked_fill(twice, -torch.inf)
    )


def plausible(law: Law) -> Law:
    """Return the law of one iteration without the points that are next to impossible."""
    return _only(law, law.log_shift > law.log_shift.max() - _RARE)


def likely(law: Law, away: Tensor, censored: Tensor, present: Tensor) -> Law:
    """Return the law of one iteration with the points that matter given these log times.

    Some workers decide which. If that leaves many points, the factor is still uncertain, and
    fewer will do that stand for their neighbours too.
    """
    nodes, width = present.shape
    most = max(_FEWEST, _WORK // len(law.shift))
    each = -(-width // max(1, most // nodes))
    every = -(-nodes // most)
    place = slice(None, None, every), slice(None, None, each)
    some = Law(
        law.shift,
        law.log_shift,
        *(part[place[0]] for part in (law.level, law.log_regime)),
        *(part[place] for part in law[4:]),
    )
    here = present[place]
    by_worker = torch.logaddexp(*log_parts(some, away[place], censored[place]))
    found, _ = posterior(some, by_worker * here[..., None, None])
    kept = found > found.max() - _UNLIKELY
    return _fewer(_only(law, kept), found[kept], max(_FEWEST, _WORK // present.numel()))


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
