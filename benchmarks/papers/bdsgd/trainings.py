"""Strategies that train on the same run times: their models, runs and results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from benchmarks.papers.bdsgd.cut_offs.clusters import Recorded
from benchmarks.papers.claims import show_rows
from benchmarks.papers.curves import Curve, curves_of
from benchmarks.papers.over_seeds import Spread
from benchmarks.papers.pace import accuracy_between
from benchmarks.papers.psp.settings import seconds_to_error

from outpace.experiment.comparison import variants_from
from outpace.predict import models
from outpace.predict.recorded import RunTimes, write

ALL: Final = "wait for all"  # the strategy that the others are compared with
Plain = Mapping[str, Any]
Curves = Mapping[str, Curve]  # of one repetition, by strategy


def table(run: Recorded) -> RunTimes:
    return RunTimes(run.seconds, np.zeros(run.seconds.shape, dtype=bool), run.node)


def with_models(
    strategies: Mapping[str, Plain], times: Sequence[RunTimes], out: Path, name: str, seed: int
) -> dict[str, Plain]:
    """Return the strategies with the files of models fitted to these times, in out/NAME-KIND."""
    found = {}
    for strategy, sync in strategies.items():
        kind = sync.get("model")
        if kind in models.MODELS:
            path = (out / f"{name}-{kind}.safetensors").resolve()
            sync = {**sync, "file": str(path)}
            ordered = sync.pop("ordered", None)
            if not path.exists():
                models.save(models.fit(kind, times, seed=seed, ordered=ordered), path)
        found[strategy] = sync
    return found


def train(
    experiment: Plain, strategies: Mapping[str, Plain], times: RunTimes, out: Path
) -> dict[str, Curve]:
    """Train with every strategy in virtual time on these run times, in out/STRATEGY."""
    path = out.parent / f"{out.name}.parquet"
    write(times, path)
    law = {"kind": "trace", "path": str(path.resolve())}
    variants = [{"name": name, "sync": sync} for name, sync in strategies.items()]
    data = {**experiment, "workers": times.workers, "compute": law, "variants": variants}
    found = curves_of(variants_from(data, out.name, Path(__file__).parent), out)
    return {name: curve for name, (curve,) in found.items()}


@dataclass(frozen=True, slots=True)
class Target:
    """Loss and accuracy of waiting for all, around nine tenths of its run."""

    loss: float
    accuracy: float

    @classmethod
    def of(cls, curves: Curves) -> Target:
        run = curves[ALL]
        times = 0.85 * run.seconds[-1], 0.95 * run.seconds[-1]
        loss = accuracy_between(replace(run, accuracy=run.loss), *times)
        return cls(loss, accuracy_between(run, *times))


@dataclass(frozen=True, slots=True)
class Measured:
    """Results of one strategy over the repetitions."""

    seconds_to_loss: Spread  # infinite if it was not reached
    seconds_to_accuracy: Spread
    final_accuracy: Spread  # mean over the last tenth of the time
    final_loss: Spread  # likewise, on the test data
    gradients_per_s: Spread
    iterations: Spread  # mean over the workers if they have no common ones
    count: Spread  # gradients per iteration

    def faster(self, other: Measured) -> Spread:
        """Return how many times faster this strategy reaches the loss."""
        return other.seconds_to_loss / self.seconds_to_loss


def measured(repetitions: Sequence[Curves]) -> dict[str, Measured]:
    """Return the results by strategy. Each repetition has a separate target."""
    targets = {id(curves): Target.of(curves) for curves in repetitions}
    found = {}
    for name in repetitions[0]:

        def each(quantity: Callable[[Curve, Target], float], name: str = name) -> Spread:
            return Spread(
                tuple(quantity(curves[name], targets[id(curves)]) for curves in repetitions)
            )

        found[name] = Measured(
            each(lambda run, goal: run.seconds_above(goal.loss)),
            each(lambda run, goal: seconds_to_error(run, 1 - goal.accuracy)),
            each(lambda run, _: _at_the_end(run)),
            each(lambda run, _: _at_the_end(replace(run, accuracy=run.loss))),
            each(lambda run, _: run.summary["gradients_applied"] / run.seconds[-1]),
            each(lambda run, _: _iterations(run)),
            each(lambda run, _: run.summary["gradients_applied"] / _iterations(run)),
        )
    return found


def _at_the_end(run: Curve) -> float:
    return accuracy_between(run, 0.9 * run.seconds[-1], run.seconds[-1])


def _iterations(run: Curve) -> float:
    closed = run.summary.get("cut_offs")
    return closed["iterations"] if closed else run.summary["gradients_applied"] / run.workers


def show(title: str, rows: Mapping[str, Measured]) -> None:
    """Print the results of all strategies."""
    cells = {
        name: {
            "s to the loss": f"{row.seconds_to_loss:.1f}",
            "times faster": f"{row.faster(rows[ALL]):.2f}",
            "s to the accuracy": f"{row.seconds_to_accuracy:.1f}",
            "final accuracy": f"{row.final_accuracy:.4f}",
            "gradients/s": f"{row.gradients_per_s:.1f}",
            "iterations": f"{row.iterations:.1f}",
            "gradients per iteration": f"{row.count:.1f}",
        }
        for name, row in rows.items()
    }
    show_rows(title, cells)
