"""PSP-SGD, figure 3: without delays partial push and pull lose nothing. See fig3.yaml."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from benchmarks.papers.claims import Claim
from benchmarks.papers.curves import Curve, Curves, Experiments
from benchmarks.papers.over_seeds import Spread, all_of, over_seeds
from benchmarks.papers.psp.settings import SETTINGS, end, final_error

QUICK = ("stop.iterations=30", "seeds=1")

SAME = 0.03  # errors
FASTER = 0.15  # the largest share of time that may be saved if nothing is late


def claims(curves: Curves, experiments: Experiments) -> list[Claim]:
    """Judge the claims of the figure by these runs."""
    sync, *partial = (setting.name for setting in SETTINGS)
    ends = [over_seeds(curves[name], end) for name in (sync, *partial)]
    saved = 1 - (ends[-1] / ends[0]).mean
    found = []
    for name in partial:
        before, after = (over_seeds(curves[each], final_error) for each in (sync, name))
        gap = later_gap(curves[name], curves[sync])
        found.append(
            Claim(
                "figure 3, by epochs",
                f"{name}: low validation error, as {sync}",
                f"at the end {after:.4f} against {before:.4f}; at most {gap:.4f} apart after the "
                "first third",
                (after - before).near(0, SAME) and gap.near(0, SAME),
                margin=f"both within {SAME}",
            )
        )
    return [
        *found,
        Claim(
            "figure 3, by time",
            "a little faster than synchronous",
            f"{', '.join(f'{end:.0f}' for end in ends)} s",
            all_of([*(b.below(a) for a, b in pairwise(ends)), saved <= FASTER]),
            margin=f"in this order, saving at most {FASTER:.0%}",
        ),
    ]


def later_gap(runs: Sequence[Curve], others: Sequence[Curve]) -> Spread:
    """Return the difference of the errors at the evaluation where their means differ most.

    Evaluations of the first third of the iterations do not count; NaN if a run has failed.
    """
    if any(run.error is not None for run in (*runs, *others)):
        return Spread((math.nan,) * len(runs))
    by_seed = [
        [b - a for a, b in zip(run.accuracy, other.accuracy, strict=True)]
        for run, other in zip(runs, others, strict=True)
    ]
    evaluations = [Spread(values) for values in zip(*by_seed, strict=True)]
    later = evaluations[len(evaluations) // 3 :]
    return max(later, key=lambda gap: abs(gap.mean))
