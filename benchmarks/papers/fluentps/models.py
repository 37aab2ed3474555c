"""FluentPS: DSPS, and a model that is changed at run time. See models.yaml."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from benchmarks.papers.claims import Claim
from benchmarks.papers.curves import Curve, Curves, Experiments
from benchmarks.papers.fluentps.table4 import ALIKE
from benchmarks.papers.over_seeds import Spread, all_of, over_seeds
from benchmarks.papers.pace import accuracy

QUICK = ("seeds=1",)

CHANGED: Final = "BSP then ASP"
LOW, HIGH, DSPS = "SSP 1", "SSP 5", "DSPS 1 to 5"
SAME: Final = 0.02  # relative difference of paces; BSP and ASP differ by more


def claims(curves: Curves, experiments: Experiments) -> list[Claim]:
    """Judge both models."""
    (change,) = experiments[CHANGED].sync_changes
    end_s = experiments[CHANGED].stop.virtual_time_s
    return [*_dsps(curves, end_s), _changed(curves, change.at_s, end_s)]


def pace_between(runs: Sequence[Curve], start_s: float, end_s: float) -> Spread:
    """Return the gradients per worker and second between two times."""

    def of(run: Curve) -> float:
        first, last = np.interp([start_s, end_s], run.seconds, run.gradients)
        return float((last - first) / (end_s - start_s))

    return over_seeds(runs, of)


def _dsps(curves: Curves, end_s: float) -> list[Claim]:
    low, dsps, high = (pace_between(curves[name], 0.0, end_s) for name in (LOW, DSPS, HIGH))
    better = over_seeds(curves[DSPS], accuracy) - over_seeds(curves[LOW], accuracy)
    return [
        Claim(
            "table III, DSPS",
            "adjusts the bound to the workers' performance, and so improves SSP",
            f"{LOW} {low:.3f}, {DSPS} {dsps:.3f}, {HIGH} {high:.3f} iterations per worker and "
            f"second; accuracy {better:+.4f} apart from {LOW}",
            all_of([low.below(dsps), dsps.below(high * (1 + SAME)), better.mean >= -ALIKE]),
            margin=f"faster than {LOW}, no faster than {HIGH}, at most {ALIKE:g} less accurate",
        )
    ]


def _changed(curves: Curves, at_s: float, end_s: float) -> Claim:
    windows = (("BSP", 0.0, at_s), ("ASP", at_s, end_s))
    ratios = {
        model: pace_between(curves[CHANGED], *window) / pace_between(curves[model], *window)
        for model, *window in windows
    }
    apart = pace_between(curves["ASP"], 0, end_s) / pace_between(curves["BSP"], 0, end_s)
    return Claim(
        "section I, a model changed at run time",
        "the synchronization model can be adjusted while training goes on",
        ", ".join(f"{ratio:.3f} of {model}'s pace" for model, ratio in ratios.items())
        + f" before and after; ASP has {apart:.2f} times BSP's",
        all(ratio.near(1.0, SAME) for ratio in ratios.values()) and apart.mean > 1 + 2 * SAME,
        margin=f"each within {SAME:.0%}, and the two models further apart",
    )
