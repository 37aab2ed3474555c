"""FluentPS, section III-E2: the α of dynamic PSSP. See alpha.yaml."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np
import pyarrow.compute as pc
from benchmarks.papers.claims import Claim
from benchmarks.papers.curves import Curve, Curves, Experiments
from benchmarks.papers.over_seeds import Spread, all_of, highest, over_seeds
from benchmarks.papers.pace import listed, paces_of

QUICK = ("seeds=1", "stop.iterations=40")

NUMBERS: Final = ("0.1", "0.5", "1")
SIGNIFICANCE, CONSTANT = "soft significance", "soft P = 0.5"
# Accuracies of the same network differ by up to 0.012 between strategies in table IV.
ALIKE = 0.015
# α is estimated from about 1500 pulls or more in a quarter of a run.
ESTIMATED = 0.1


def claims(curves: Curves, experiments: Experiments) -> list[Claim]:
    """Judge what the paper says about α by these runs."""
    paces = paces_of(curves)
    numbers = [paces[f"soft {alpha}"] for alpha in NUMBERS]
    by_significance, constant = paces[SIGNIFICANCE], paces[CONSTANT]
    best = highest(each.accuracy for each in paces.values())
    alphas = {alpha: in_quarters(curves[f"soft {alpha}"]) for alpha in NUMBERS}
    return [
        Claim(
            "section III-E2",
            "P(s, k) = α / (1 + e^(s−k)) at leads k ≥ s",
            "; ".join(f"α = {alpha}: {listed(found, 2)}" for alpha, found in alphas.items()),
            all(
                each.near(float(alpha), ESTIMATED * float(alpha))
                for alpha, found in alphas.items()
                for each in found
            ),
            margin=f"estimates in each quarter of the iterations within {ESTIMATED:.0%}",
        ),
        *_significance(in_quarters(curves[SIGNIFICANCE])),
        Claim(
            "section IV-B4",
            "dynamic PSSP causes few delayed pulls, or has a high accuracy, by its α",
            f"per 100 iterations, α = .1, .5, 1: {listed((p.delayed for p in numbers), 0)}; "
            f"significance {by_significance.delayed:.0f}",
            all_of(
                [
                    numbers[0].delayed.below(numbers[1].delayed),
                    numbers[1].delayed.below(numbers[2].delayed),
                    by_significance.delayed.below(numbers[1].delayed),
                ]
            ),
            margin="more with a larger α, significance below α = 0.5",
        ),
        Claim(
            "table IV",
            "accuracies are alike for all α",
            "; ".join(f"{name}: {each.accuracy:.3f}" for name, each in paces.items()),
            all((best - each.accuracy).near(0.0, ALIKE) for each in paces.values()),
            margin=f"means within {ALIKE}",
        ),
        Claim(
            "theorem 2",
            "α = 1 holds at least as many pulls as PSSP with the constant P = α/2",
            f"{numbers[2].delayed:.0f} and {constant.delayed:.0f} per 100 iterations",
            constant.delayed.below(numbers[2].delayed),
            margin="in this order",
        ),
    ]


def _significance(found: Sequence[Spread]) -> list[Claim]:
    """Judge the significance as α, in quarters of the iterations."""
    first, *_, last = found
    return [
        Claim(
            "section III-E2",
            "α = |g|/|w| is above 0 before the loss is at its minimum",
            f"α in quarters of the iterations: {listed(found, 3)}",
            all(each.mean > 0 for each in found),
            margin="above 0 in each quarter",
        ),
        Claim(
            "sections III-E2, V-B",
            "with the significance P follows the phases of training",
            f"α from {first:.3f} in the first quarter to {last:.3f} in the last",
            (last * 2.0).below(first),
            margin="in the last quarter below half of the first",
        ),
    ]


def in_quarters(runs: Sequence[Curve]) -> list[Spread]:
    """Return α in each quarter of the iterations."""
    return [over_seeds(runs, partial(alpha_of, quarter=quarter)) for quarter in range(4)]


def alpha_of(run: Curve, quarter: int) -> float:
    """Estimate α from the pulls in this quarter of the iterations whose lead reached the bound.

    A pull with the lead k is held with P = α / (1 + e^(s−k)), so the mean of (1 + e^(s−k)) over the
    pulls that were held, and of 0 over the others, is α. NaN if no lead reached the bound.
    """
    pulls = run.trace("pull", ["iteration", "lead", "bound", "reason"])
    iteration, lead, bound = (pulls[name].to_numpy() for name in ("iteration", "lead", "bound"))
    held = pc.not_equal(pc.cast(pulls["reason"], "string"), "spared").to_numpy()
    last = iteration.max() + 1
    beyond = (lead >= bound) & (iteration * 4 // last == quarter)
    if not beyond.any():
        return float("nan")
    weights = np.where(held, 1 + np.exp(bound - lead), 0.0)
    return float(weights[beyond].mean())
