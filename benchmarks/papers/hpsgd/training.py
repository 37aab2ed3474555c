"""HPSGD: accuracy and time of equally many iterations, by model and workers. See training.yaml."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
from benchmarks.papers.claims import Claim
from benchmarks.papers.curves import Curve, Curves, Experiments, of_case, require_complete
from benchmarks.papers.hpsgd.accuracy import comes_first
from benchmarks.papers.hpsgd.scaling import HPSGD, LOCAL, PSGD, SSGD
from benchmarks.papers.over_seeds import INTERVAL, Spread, all_of, over_seeds
from benchmarks.papers.pace import accuracy_at_end

QUICK = ("seeds=1", "stop.virtual_time_s=2")

TARGETS: Final = {  # accuracies, by case
    "digits-mlp, 4 workers": (0.4, 0.8),
    "digits-mlp, 8 workers": (0.4, 0.8),
    "digits-mlp, 16 workers": (0.4, 0.8),
    "fashion-mnist-cnn, 4 workers": (0.4, 0.7),
    "small-resnet, 4 workers": (0.4, 0.8),
    "char-gpt, 4 workers": (0.3, 0.35),
}
IDENTICAL: Final = 0.03  # of accuracies that are "generally identical"
POINTS: Final = 11  # number of points of a curve; every run has more evaluations
BOUND: Final = 0.01  # by which HPSGD may be slower than PSGD, which never communicates


@dataclass(frozen=True, slots=True)
class Found:
    """Results of one strategy, by seed."""

    accuracy: Spread  # the mean over the last tenth of the iterations
    step_s: Spread  # of the whole run, for each iteration
    seconds: Mapping[float, Spread]  # to an accuracy; infinite if a run did not reach it
    roughness: Spread  # of the curve of the accuracy over the iterations

    @classmethod
    def of(cls, runs: Sequence[Curve], targets: Sequence[float]) -> Found:
        require_complete(runs)
        return cls(
            over_seeds(runs, lambda run: accuracy_at_end(replace(run, seconds=run.gradients))),
            over_seeds(runs, lambda run: run.seconds[-1] / run.gradients[-1]),
            {
                target: over_seeds(runs, partial(Curve.seconds_to_error, error=1 - target))
                for target in targets
            },
            over_seeds(runs, roughness),
        )


def roughness(run: Curve) -> float:
    """Return the mean bend of a curve of accuracies, at equally many iterations for each strategy.

    The bend at an evaluation is how far the accuracy is from the line between its neighbours; a
    straight line has none. Evaluations are equally far apart in time, so the strategies have
    different numbers of them: the evaluations next to `POINTS` equal steps are used. NaN for fewer
    than 3.
    """
    done, accuracies = np.array(run.gradients), np.array(run.accuracy)
    steps = np.linspace(0, done[-1], POINTS)
    chosen = np.unique(np.abs(done[:, None] - steps).argmin(axis=0))
    x, y = done[chosen], accuracies[chosen]
    line = y[:-2] + (y[2:] - y[:-2]) * (x[1:-1] - x[:-2]) / (x[2:] - x[:-2])
    return float(np.abs(y[1:-1] - line).mean()) if len(line) else math.nan


def claims(curves: Curves, experiments: Experiments) -> list[Claim]:
    """Judge the published accuracies and times of each model and number of workers."""
    return [
        claim
        for case, targets in TARGETS.items()
        for claim in _of_case(
            case,
            targets,
            {name: Found.of(runs, targets) for name, runs in of_case(curves, case).items()},
        )
    ]


def _of_case(where: str, targets: Sequence[float], rows: Mapping[str, Found]) -> Iterator[Claim]:
    ssgd, local, hpsgd, psgd = (rows[name] for name in (SSGD, LOCAL, HPSGD, PSGD))
    apart = hpsgd.accuracy - ssgd.accuracy
    yield Claim(
        f"figure 4, {where}",
        "at the end HPSGD is as accurate as SSGD",
        f"{apart:+.3f} apart; "
        + "; ".join(f"{name} {row.accuracy:.3f}" for name, row in rows.items()),
        apart.near(0.0, IDENTICAL),
        margin=f"within {IDENTICAL:g}",
    )
    yield Claim(
        f"figure 4, {where}",
        "the accuracy curve of HPSGD is smoother than that of other methods",
        "mean bend of the curve: "
        + "; ".join(f"{name} {row.roughness * 100:.2f} %" for name, row in rows.items()),
        all_of(hpsgd.roughness.below(other.roughness) for other in (ssgd, local, psgd)),
        margin=INTERVAL,
    )
    yield Claim(
        f"figure 5 (b), {where}",
        "time of an epoch: PSGD ≤ HPSGD < Local SGD < SSGD",
        "an iteration takes "
        + "; ".join(f"{name} {row.step_s:.3f} s" for name, row in rows.items()),
        all_of(
            [
                hpsgd.step_s.below(local.step_s),
                local.step_s.below(ssgd.step_s),
                (hpsgd.step_s / psgd.step_s).mean >= 1 - BOUND,
            ]
        ),
        margin=f"HPSGD at most {BOUND:.0%} faster than PSGD",
    )
    seconds = {name: list(row.seconds.values()) for name, row in rows.items()}
    yield comes_first(f"figure 6 (b), {where}", " and ".join(map(str, targets)), seconds)
