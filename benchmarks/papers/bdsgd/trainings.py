"""Strategies that train on the same run times: their models, runs and results."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from benchmarks.papers.bdsgd.cut_offs.clusters import Recorded
from benchmarks.papers.comparing import compare_with_bars
from benchmarks.papers.curves import Curve, read_curve
from benchmarks.papers.over_seeds import Spread
from benchmarks.papers.pace import accuracy_between
from benchmarks.papers.psp.settings import seconds_to_error
from plotly.subplots import make_subplots
from rich.console import Console
from rich.table import Table

from outpace.experiment.comparison import variants_from
from outpace.predict import models
from outpace.predict.recorded import RunTimes, write
from outpace.report.figures.figure import colour, dash

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
    compare_with_bars(variants_from(data, out.name, Path(__file__).parent), out)
    return {name: read_curve(out / name) for name in strategies}


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

    seconds_to_loss: Spread  # infinite if it never came that far
    seconds_to_accuracy: Spread
    final_accuracy: Spread  # the mean over the last tenth of the time
    final_loss: Spread  # likewise, on the test data
    gradients_per_s: Spread
    iterations: Spread  # mean over the workers if they have no common ones
    count: Spread  # gradients per iteration

    def faster(self, other: Measured) -> Spread:
        """Return how many times faster this strategy reaches the loss."""
        return other.seconds_to_loss / self.seconds_to_loss


def measured(repetitions: Sequence[Curves]) -> dict[str, Measured]:
    """Return the results by strategy. Each repetition has a target of its own."""
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
    columns = (
        "s to the loss",
        "times faster",
        "s to the accuracy",
        "final accuracy",
        "gradients/s",
        "iterations",
        "gradients per iteration",
    )
    found = Table("strategy", *columns, title=title)
    for name, row in rows.items():
        cells = [
            f"{row.seconds_to_loss:.1f}",
            f"{row.faster(rows[ALL]):.2f}",
            f"{row.seconds_to_accuracy:.1f}",
            f"{row.final_accuracy:.4f}",
            f"{row.gradients_per_s:.1f}",
            f"{row.iterations:.1f}",
            f"{row.count:.1f}",
        ]
        found.add_row(name, *cells)
    Console(width=150).print(found)


def with_error(values: Iterable[float], digits: int) -> str:
    """Return the mean and its standard error in words, without the error for a single value."""
    return f"{Spread(tuple(values)):.{digits}f}"


def keep(results: Mapping[str, Mapping[str, Any]], out: Path) -> None:
    """Write results, dataclasses by title and strategy, to out/results.json."""
    plain = {
        title: {name: asdict(row) for name, row in rows.items()} for title, rows in results.items()
    }
    (out / "results.json").write_text(json.dumps(plain, indent=1) + "\n")


def draw(title: str, curves: Curves, path: Path) -> None:
    """Draw loss and accuracy against time, and the targets as dotted lines."""
    figure = make_subplots(rows=1, cols=2, subplot_titles=("test loss", "test accuracy"))
    for place, (name, run) in enumerate(curves.items()):
        line = {"color": colour(place), "dash": dash(place)}
        more = {"x": run.seconds, "line": line, "name": name, "mode": "lines", "legendgroup": name}
        figure.add_scatter(y=run.loss, row=1, col=1, **more)
        figure.add_scatter(y=run.accuracy, row=1, col=2, showlegend=False, **more)
    goal = Target.of(curves)
    for column, value in enumerate((goal.loss, goal.accuracy), 1):
        figure.add_hline(value, row=1, col=column, line={"dash": "dot", "width": 1})
    figure.update_yaxes(type="log", row=1, col=1)
    figure.update_xaxes(title_text="seconds")
    figure.update_layout(title=title, legend={"orientation": "h", "y": -0.15})
    figure.write_html(path)
