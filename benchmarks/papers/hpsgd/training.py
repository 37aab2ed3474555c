"""HPSGD: accuracy and time of equally many iterations, by model and workers. See training.yaml."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from benchmarks.papers.claims import Claim
from benchmarks.papers.curves import Curve, curves_of, require_complete
from benchmarks.papers.hpsgd.scaling import HPSGD, LOCAL, PSGD, SSGD
from benchmarks.papers.over_seeds import Spread, all_of, over_seeds
from benchmarks.papers.pace import accuracy_between
from benchmarks.papers.psp.settings import seconds_to_error

from outpace.experiment.comparison import variants_from

QUICK = (
    "repeats=1",
    "models.digits-mlp.workers=[4]",
    "models.digits-mlp.experiment.stop={iterations: 40}",
    "models.fashion-mnist-cnn.experiment.stop={iterations: 5}",
    "models.small-resnet.experiment.stop={iterations: 20}",
    "models.char-gpt.experiment.stop={iterations: 20}",
)

IDENTICAL: Final = 0.03  # of accuracies that are "generally identical"
POINTS: Final = 11  # number of points of a curve; every run has more evaluations
BOUND: Final = 0.01  # by which HPSGD may be slower than PSGD, which never communicates


@dataclass(frozen=True, slots=True)
class Found:
    """Results of one strategy, by seed."""

    accuracy: Spread  # the mean over the last tenth of the iterations
    step_s: Spread  # of the whole run, for each iteration
    seconds: dict[str, Spread]  # to an accuracy; infinite if a run did not reach it
    roughness: Spread  # of the curve of the accuracy over the iterations

    @classmethod
    def of(cls, runs: Sequence[Curve], targets: Sequence[float]) -> Found:
        return cls(
            over_seeds(runs, _final),
            over_seeds(runs, lambda run: run.seconds[-1] / run.gradients[-1]),
            {
                f"{target:g}": over_seeds(runs, partial(seconds_to_error, error=1 - target))
                for target in targets
            },
            over_seeds(runs, roughness),
        )


Rows = Mapping[str, Found]  # by strategy
Results = Mapping[tuple[str, int], Rows]  # by model and workers


def _final(run: Curve) -> float:
    """Return the mean accuracy over the last tenth of the iterations."""
    end = run.gradients[-1]
    return accuracy_between(replace(run, seconds=run.gradients), 0.9 * end, end)


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


def run(data: Mapping[str, Any], out: Path) -> list[Claim]:
    """Train all, and judge."""
    torch.set_num_threads(1)
    results = {}
    for model, settings in data["models"].items():
        for workers in settings["workers"]:
            curves = _train(data, settings, workers, out / f"{model}-{workers}")
            results[model, workers] = {
                name: Found.of(runs, settings["targets"]) for name, runs in curves.items()
            }
    return claims(results)


def _train(
    data: Mapping[str, Any], settings: Mapping[str, Any], workers: int, out: Path
) -> dict[str, list[Curve]]:
    """Train with each strategy and seed."""
    network = data["network"]
    bandwidth = 4 * settings["parameters"] / network["whole_s"]
    experiment = {
        "seed": data["seed"],
        "workers": workers,
        "compute": {"kind": "lognormal", "mean_s": data["step_s"], "cv": data["spread"]},
        "network": {"latency_s": network["latency_s"], "bandwidth_bytes_per_s": bandwidth},
        "variants": [{"name": name, "sync": sync} for name, sync in data["strategies"].items()],
        **settings["experiment"],
    }
    variants = variants_from(experiment, out.name, Path(__file__).parent)
    curves = curves_of(variants, out, seeds=data["repeats"])
    for runs in curves.values():
        require_complete(runs)
    return curves


def claims(results: Results) -> list[Claim]:
    """Judge the published accuracies and times of each model and number of workers."""
    return [
        claim for (model, workers), rows in results.items() for claim in _of(model, workers, rows)
    ]


def _of(model: str, workers: int, rows: Rows) -> Iterator[Claim]:
    where = f"{model}, {workers} workers"
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
        margin="95 % interval of the paired difference",
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
    targets = list(hpsgd.seconds)
    yield Claim(
        f"figure 6 (b), {where}",
        f"HPSGD comes to {' and '.join(targets)} before Local SGD, and that before SSGD",
        "; ".join(
            f"{name} {' and '.join(f'{rows[name].seconds[target]:.1f}' for target in targets)} s"
            for name in (HPSGD, LOCAL, SSGD)
        ),
        all_of(
            one.seconds[target].below(other.seconds[target])
            for one, other in ((hpsgd, local), (local, ssgd))
            for target in targets
        ),
    )
