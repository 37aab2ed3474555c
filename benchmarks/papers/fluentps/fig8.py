"""FluentPS, figure 8: soft barrier against lazy execution. See fig8.yaml."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.papers.claims import Claim
from benchmarks.papers.curves import Curve
from benchmarks.papers.pace import accuracy_between, pace

from outpace.config.experiment import Experiment

QUICK = ("stop.iterations=60",)

FIGURES: dict[str, list[str]] = {}
APART = 0.12  # published for the same network in table IV: 1.19 and 1.31, on two data sets
MIDWAY = (16500 / 29800, 23500 / 29800)  # of the time that soft takes for all


def claims(curves: Mapping[str, Curve], experiments: Mapping[str, Experiment]) -> list[Claim]:
    """Judge the paper's claims about its figure by these runs."""
    soft, lazy = curves["soft"], curves["lazy"]
    ratio = pace(lazy).faster_than(pace(soft))
    start, end = (share * soft.seconds[-1] for share in MIDWAY)
    ahead, behind = (accuracy_between(curve, start, end) for curve in (lazy, soft))
    by_iterations = pace(lazy).accuracy - pace(soft).accuracy
    return [
        Claim(
            "figure 8",
            "lazy execution is 1.21 times faster",
            f"{ratio:.2f} times",
            abs(ratio - 1.21) <= APART,
            margin=f"within {APART}",
        ),
        Claim(
            "figure 8",
            "lazy execution has a much higher accuracy midway, from 55 to 79 % of soft's time",
            f"{ahead:.3f} against {behind:.3f}",
            ahead > behind + 0.01,
            margin="0.01 more",
        ),
        Claim(
            "figure 8, table IV",
            "lazy execution ends with an accuracy that is as good (0.931 against 0.924)",
            f"{by_iterations:+.3f} at the same iterations",
            abs(by_iterations) < 0.02,
            margin="within 0.02",
        ),
    ]
