"""BDSGD, figure 5: time to a number of iterations, accuracy at a time. See fig5.yaml."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import thread_time
from typing import Any, Final

import numpy as np
from benchmarks.papers.bdsgd.cut_offs.clusters import SPEEDS, Recorded, drifting
from benchmarks.papers.bdsgd.cut_offs.measuring import FIT_SEED
from benchmarks.papers.bdsgd.trainings import ALL, Curves, Plain, train, with_models
from benchmarks.papers.claims import Claim
from benchmarks.papers.curves import Curve
from benchmarks.papers.over_seeds import INTERVAL, Spread, all_of, over_seeds, show_spreads

from outpace.predict import models
from outpace.predict.interface import Model, Wait
from outpace.predict.recorded import RunTimes, Seconds
from outpace.predict.replay import replay
from outpace.predict.rules.baselines import Fixed

QUICK = ("seeds=2", "workers=8", "recorded=30")

CHEN, BDSGD = "Chen", "deep Markov"
# Per cent of time saved over waiting for all, and of gradients used beyond Chen's: section 4.2.
SAVED: Final = {
    "5.34": {CHEN: 1.2, BDSGD: 1.0},
    "2.83": {CHEN: 9.3, BDSGD: 7.8},
    "0.24": {BDSGD: 7.6},
}
MORE_GRADIENTS: Final = {"5.34": 5.0, "2.83": 3.2}
# Published: 1.2 and 1 %, 9.3 and 7.8 % are "roughly the same" (caption). At 5.34 s an oracle saves
# less here than BDSGD in the paper, because the slowest of fewer workers are not as slow; what it
# saves is then in place of the published number.
FACTOR: Final = 2.0
ALIKE: Final = 0.01  # of accuracy: "roughly equal" (caption); the scale of the figure has 5 points


@dataclass(frozen=True, slots=True)
class Found:
    """Results of one strategy at one speed over the repetitions."""

    seconds: Spread  # to the last iteration
    accuracy: Spread  # at half of Chen's seconds
    gradients: Spread  # applied in the whole run
    gradients_per_s: Spread  # while computing


Rows = Mapping[str, Found]


def run(data: Mapping[str, Any], out: Path) -> list[Claim]:
    """Train, show and judge."""
    judged: list[Claim] = []
    for speed, setting in data["speeds"].items():
        iterations = setting["iterations"]
        experiment = {
            **data["experiment"],
            "optimizer": {"kind": "sgd", "lr": setting["lr"]},
            "stop": {"iterations": iterations},
        }
        fit = _part(drifting(data["recorded"], FIT_SEED, SPEEDS[speed]), data["workers"]).times
        strategies = with_models(
            _with(data["strategies"], setting["every"]), [fit], out, speed, data["seed"]
        )
        repetitions, oracle, sorting = [], [], Sorting.fitted(fit, data["seed"])
        for seed in range(data["seed"], data["seed"] + data["seeds"]):
            times = _part(drifting(iterations, seed, SPEEDS[speed]), data["workers"]).times
            place = out / f"{speed}s-seed-{seed}"
            repetitions.append(train({**experiment, "seed": seed}, strategies, times, place))
            oracle.append(oracle_saves(times.seconds, setting["overhead_s"]))
            sorting.predict(times)
        rows = found(repetitions, iterations * setting["overhead_s"])
        show_spreads(f"{speed} s, {iterations} iterations", rows)
        judged += claims(speed, rows, Spread(tuple(oracle)))
        judged.append(sorting.claim(f"section 4.2, {speed} s"))
    return judged


@dataclass
class Sorting:
    """Models of sorted run times and of each worker's own: the time of a fit, and their errors."""

    models: Mapping[bool, Model]  # sorted or not -> model
    fit_s: Mapping[bool, float]
    errors: Mapping[bool, list[float]]  # one for each test run, in per cent of the mean run time

    @classmethod
    def fitted(cls, times: RunTimes, seed: int) -> Sorting:
        found, took = {}, {}
        for ordered in (True, False):
            begun = thread_time()
            found[ordered] = models.fit("deep-markov", [times], seed=seed, ordered=ordered)
            took[ordered] = thread_time() - begun
        return cls(found, took, {True: [], False: []})

    def predict(self, times: RunTimes) -> None:
        """Add the errors of predicted order statistics, one iteration ahead, in a test run."""
        for ordered, model in self.models.items():
            self.errors[ordered].append(prediction_error(model, times))

    def claim(self, where: str) -> Claim:
        error = {ordered: Spread(tuple(errors)) for ordered, errors in self.errors.items()}
        how = {True: "sorted", False: "each worker's own"}
        return Claim(
            where,
            "emitting sorted run times directly is faster to train and more accurate",
            "; ".join(
                f"{how[ordered]}: {self.fit_s[ordered]:.1f} s, off by {error[ordered]:.2f} %"
                for ordered in how
            ),
            all_of([self.fit_s[True] < self.fit_s[False], error[True].below(error[False])]),
            margin=f"{INTERVAL}; processor time of one fit each",
        )


def prediction_error(model: Model, times: RunTimes, samples: int = 100) -> float:
    """Return how far order statistics are from their predicted means, in % of the mean run time."""
    following, off = model.follow(times.node, 0), []
    for iteration, row in enumerate(times.seconds):
        if iteration >= model.needs:
            drawn = np.sort(following.predict().sample(samples), axis=1)
            off.append(np.abs(drawn.mean(axis=0) - np.sort(row)).mean() / row.mean())
        following.observe(row, np.zeros(len(row), dtype=bool))
    return 100 * float(np.mean(off))


def oracle_saves(seconds: Seconds, overhead_s: float) -> float:
    """Return the per cent of time that the best cut-offs save; seconds: (T, N), all of them."""
    done = replay(Fixed(Wait()), seconds)
    ends_s = done.best_s.sum() + len(seconds) * overhead_s
    return 100 * float(1 - ends_s / (done.all_s.sum() + len(seconds) * overhead_s))


def _part(run: Recorded, workers: int) -> Recorded:
    """Return this many workers of the cluster, evenly from all nodes."""
    chosen = np.linspace(0, len(run.node) - 1, workers).astype(int)
    return Recorded(run.seconds[:, chosen], run.node[chosen])


def _with(strategies: Mapping[str, Plain], every: int) -> dict[str, Plain]:
    """Return the strategies with the predicted cut-off kept for this many iterations."""
    return {
        name: {**sync, "every": every} if sync.get("model") in models.MODELS else sync
        for name, sync in strategies.items()
    }


def found(repetitions: Sequence[Curves], overhead_s: float) -> dict[str, Found]:
    """Return the results by strategy, with the accuracy interpolated linearly.

    The fixed time is the paper's (caption of figure 5): half of the time that Chen's method takes.
    overhead_s: seconds that are added in the course of a run, whose evaluations are equally many
    iterations apart.
    """

    def seconds(run: Curve) -> Seconds:
        return np.asarray(run.seconds + np.linspace(0, overhead_s, len(run.seconds)))

    def of_strategy(runs: Sequence[Curve]) -> Found:
        at_half = [
            float(np.interp(0.5 * seconds(curves[CHEN])[-1], seconds(run), run.accuracy))
            for curves, run in zip(repetitions, runs, strict=True)
        ]
        return Found(
            over_seeds(runs, lambda run: float(seconds(run)[-1])),
            Spread(tuple(at_half)),
            over_seeds(runs, lambda run: run.summary["gradients_applied"]),
            over_seeds(runs, lambda run: run.summary["gradients_applied"] / run.seconds[-1]),
        )

    return {name: of_strategy([curves[name] for curves in repetitions]) for name in repetitions[0]}


def claims(speed: str, rows: Rows, oracle: Spread) -> list[Claim]:
    """Judge the claims of section 4.2 about this network.

    oracle: per cent of time that an oracle saves.
    """
    where = f"figure 5, {speed} s"
    mine, chen, everyone = rows[BDSGD], rows[CHEN], rows[ALL]
    published = SAVED[speed]
    saved = {name: (1 - rows[name].seconds / everyone.seconds) * 100 for name in published}
    rates = ", ".join(f"{name} {row.gradients_per_s:.1f}" for name, row in rows.items())
    is_large = speed in MORE_GRADIENTS
    reached = {**published, BDSGD: min(published[BDSGD], oracle.mean)}
    near = [_within_a_factor(saved[name], reached[name]) for name in published]
    ahead = [mine.seconds.below(everyone.seconds), chen.seconds.below(mine.seconds)]
    found = [
        Claim(
            where,
            "less time for the same iterations than waiting for all: "
            + ", ".join(f"{name} {per_cent:g} %" for name, per_cent in published.items()),
            ", ".join(f"{name} {saved[name]:.1f} %" for name in published)
            + f" (an oracle {oracle:.1f} %)",
            all_of([*near, *(ahead if is_large else ahead[:1])]),
            margin=f"each within a factor of {FACTOR:g} of what is published; {BDSGD} of what an "
            "oracle saves, if that is less" + "; Chen ahead" * is_large,
        )
    ]
    if is_large:
        used = (mine.gradients / chen.gradients - 1) * 100
        others = (chen, everyone)
        found += [
            Claim(
                where,
                f"BDSGD uses {MORE_GRADIENTS[speed]:g} % more gradients than Chen",
                f"{used:.1f} %",
                _within_a_factor(used, MORE_GRADIENTS[speed]),
                margin=f"within a factor of {FACTOR:g}",
            ),
            Claim(
                where,
                "BDSGD computes the most gradients per second",
                rates,
                all_of(other.gradients_per_s.below(mine.gradients_per_s) for other in others),
                margin=INTERVAL,
            ),
        ]
    less = {name: rows[name].accuracy - mine.accuracy for name in (CHEN, ALL)}
    return [
        *found,
        Claim(
            where,
            "at half of Chen's training time, validation is about equal to the others or better",
            ", ".join(f"{name} {row.accuracy:.4f}" for name, row in rows.items())
            + "; more than "
            + ", than ".join(
                f"{name} {-of.mean:.4f} ± {of.error:.4f}" for name, of in less.items()
            ),
            all_of(of.below(ALIKE) for of in less.values()),
            margin=f"at most {ALIKE:g} of accuracy below either, by the 95 % interval",
        ),
    ]


def _within_a_factor(measured: Spread, published: float) -> bool:
    return published / FACTOR <= measured.mean <= FACTOR * published
