"""Strategies that train on the same run times: their models, runs and results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from benchmarks.papers.curves import Curve, curves_of
from benchmarks.papers.over_seeds import Spread
from benchmarks.papers.pace import accuracy_at_end, accuracy_between

from outpace.experiment.comparison import variants_from
from outpace.predict import models
from outpace.predict.recorded import RunTimes, write

ALL: Final = "wait for all"  # the strategy that the others are compared with
Plain = Mapping[str, Any]
Curves = Mapping[str, Curve]  # of one repetition, by strategy


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
    times_faster: Spread  # to the loss than waiting for all
    seconds_to_accuracy: Spread
    final_loss: Spread  # mean over the last tenth of the time, on the test data
    gradients_per_s: Spread


def measured(repetitions: Sequence[Curves]) -> dict[str, Measured]:
    """Return the results by strategy. Each repetition has a separate target."""
    targets = [Target.of(curves) for curves in repetitions]

    def over(name: str, quantity: Callable[[Curve, Target], float]) -> Spread:
        runs = [curves[name] for curves in repetitions]
        return Spread(tuple(map(quantity, runs, targets)))

    def to_loss(name: str) -> Spread:
        return over(name, lambda run, goal: run.seconds_above(goal.loss))

    return {
        name: Measured(
            to_loss(name),
            to_loss(ALL) / to_loss(name),
            over(name, lambda run, goal: run.seconds_to_error(1 - goal.accuracy)),
            over(name, lambda run, _: accuracy_at_end(replace(run, accuracy=run.loss))),
            over(name, lambda run, _: run.summary["gradients_applied"] / run.seconds[-1]),
        )
        for name in repetitions[0]
    }
