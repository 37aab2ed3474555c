"""PSP-SGD, figure 3: without delays partial push and pull lose nothing. See fig3.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from benchmarks.papers.claims import Claim
from benchmarks.papers.curves import Curve
from benchmarks.papers.psp.settings import SETTINGS, final_error

from outpace.config.experiment import Experiment

QUICK = ("stop.iterations=30",)

FIGURES = {"figure-3": [setting.name for setting in SETTINGS]}
SAME = 0.03  # errors
FASTER = 0.15  # the share of the time that may be saved where nothing is late


def claims(curves: Mapping[str, Curve], experiments: Mapping[str, Experiment]) -> list[Claim]:
    """Judge the claims of the figure by these runs."""
    del experiments
    runs = [curves[setting.name] for setting in SETTINGS]
    sync, *partial = runs
    complete = all(run.error is None for run in runs)
    ends = [run.seconds[-1] for run in runs]
    return [
        *(
            Claim(
                "figure 3, by epochs",
                f"{run.name}: low validation error, as {sync.name}",
                f"at the end {final_error(run):.4f} against {final_error(sync):.4f}; at most "
                f"{later_gap(run, sync):.4f} apart after the first third",
                complete
                and abs(final_error(run) - final_error(sync)) <= SAME
                and later_gap(run, sync) <= SAME,
                margin=f"both within {SAME}",
            )
            for run in partial
        ),
        Claim(
            "figure 3, by time",
            "a little faster than synchronous",
            f"{', '.join(f'{end:.0f}' for end in ends)} s",
            complete
            and all(after <= before for before, after in pairwise(ends))
            and ends[-1] >= (1 - FASTER) * ends[0],
            margin=f"in this order, saving at most {FASTER:.0%}",
        ),
    ]


def later_gap(run: Curve, other: Curve) -> float:
    """Return the largest difference of the errors after the first third, iteration by iteration."""
    pairs = list(zip(run.accuracy, other.accuracy, strict=False))
    return max((abs(a - b) for a, b in pairs[len(pairs) // 3 :]), default=1.0)
