"""BDSGD, figure 5: time to so many iterations, accuracy at a time. See fig5.yaml."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from benchmarks.papers.bdsgd.cut_offs.clusters import SPEEDS, Recorded, drifting
from benchmarks.papers.bdsgd.cut_offs.measuring import FIT_SEED
from benchmarks.papers.bdsgd.trainings import (
    ALL,
    Curves,
    keep,
    table,
    train,
    with_error,
    with_models,
)
from benchmarks.papers.claims import Claim
from plotly.subplots import make_subplots
from rich.console import Console
from rich.table import Table

from outpace.report.figures.figure import colour

CHEN, BDSGD = "Chen", "deep Markov"
FASTER: Final = {"5.34": 1.0, "2.83": 7.8, "0.24": 7.6}  # per cent, published
PICTURE: Final = "figure-5.html"


@dataclass(frozen=True, slots=True)
class Found:
    """Results of one strategy at one speed, one entry for each repetition."""

    seconds: list[float]  # to the last iteration
    accuracy: list[float]  # at the time that was fixed
    gradients_per_s: list[float]


Rows = Mapping[str, Found]


def run(data: Mapping[str, Any], out: Path) -> list[Claim]:
    """Train, draw out/figure-5.html, and write all results to out/results.json."""
    torch.set_num_threads(1)
    results: dict[str, Rows] = {}
    for speed, setting in data["speeds"].items():
        iterations = setting["iterations"]
        experiment = {
            **data["experiment"],
            "optimizer": {"kind": "sgd", "lr": setting["lr"]},
            "stop": {"iterations": iterations},
        }
        fit = table(_part(drifting(data["recorded"], FIT_SEED, SPEEDS[speed]), data["workers"]))
        strategies = with_models(data["strategies"], [fit], out, speed, data["seed"])
        repetitions = []
        for seed in range(data["seed"], data["seed"] + data["repeats"]):
            times = table(_part(drifting(iterations, seed, SPEEDS[speed]), data["workers"]))
            place = out / f"{speed}s-seed-{seed}"
            repetitions.append(train({**experiment, "seed": seed}, strategies, times, place))
        results[speed] = found(repetitions, iterations * SPEEDS[speed].mean_s)
        keep(results, out)
        _show(f"{speed} s, {iterations} iterations", results[speed])
    draw(results, out / PICTURE)
    print(f"report: {out / PICTURE}")
    return [claim for speed, rows in results.items() for claim in claims(speed, rows)]


def _part(run: Recorded, workers: int) -> Recorded:
    """Return the first workers of the cluster."""
    return Recorded(run.seconds[:, :workers], run.node[:workers])


def found(repetitions: Sequence[Curves], at_s: float) -> dict[str, Found]:
    """Return the results by strategy, with the accuracy at a time interpolated linearly."""
    return {
        name: Found(
            [run.seconds[-1] for run in runs],
            [float(np.interp(at_s, run.seconds, run.accuracy)) for run in runs],
            [run.summary["gradients_applied"] / run.seconds[-1] for run in runs],
        )
        for name in repetitions[0]
        for runs in [[curves[name] for curves in repetitions]]
    }


def faster(row: Found, than: Found) -> list[float]:
    """Return by how many per cent `row` took less time, for each repetition."""
    pairs = zip(row.seconds, than.seconds, strict=True)
    return [100 * (1 - mine / theirs) for mine, theirs in pairs]


def claims(speed: str, rows: Rows) -> list[Claim]:
    """Compare the published gain with those over both other strategies: the paper names neither."""
    where, said = f"figure 5, {speed} s", f"predicted cut-offs take {FASTER[speed]:g} % less time"
    mine = rows[BDSGD]
    over_all, over_chen = faster(mine, rows[ALL]), faster(mine, rows[CHEN])
    accuracy = ", ".join(f"{name} {with_error(row.accuracy, 4)}" for name, row in rows.items())
    gain = np.array(mine.accuracy) - np.array(rows[ALL].accuracy)
    error = gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else 0.0
    rate = ", ".join(f"{name} {with_error(row.gradients_per_s, 1)}" for name, row in rows.items())
    return [
        Claim(
            where,
            said,
            f"than waiting for all {with_error(over_all, 1)} %, than Chen "
            f"{with_error(over_chen, 1)} %",
            bool(np.mean(over_all) > 0),
        ),
        Claim(
            where,
            "at a fixed time they are more accurate than waiting for all",
            accuracy,
            bool(gain.mean() > error),
        ),
        Claim(
            where,
            "they compute the most gradients per second",
            rate,
            all(
                np.mean(mine.gradients_per_s) >= np.mean(rows[name].gradients_per_s)
                for name in (ALL, CHEN)
            ),
        ),
    ]


def _show(title: str, rows: Rows) -> None:
    columns = ("s", "% less than for all", "accuracy at the fixed time", "gradients/s")
    shown = Table("strategy", *columns, title=title)
    for name, row in rows.items():
        shown.add_row(
            name,
            with_error(row.seconds, 1),
            with_error(faster(row, rows[ALL]), 1),
            with_error(row.accuracy, 4),
            with_error(row.gradients_per_s, 1),
        )
    Console(width=150).print(shown)


def draw(results: Mapping[str, Rows], path: Path) -> None:
    """Draw a box for each strategy and speed: gradients per second, time, accuracy."""
    rows = {
        "gradients/s": "gradients_per_s",
        "s to the last iteration": "seconds",
        "accuracy at the fixed time": "accuracy",
    }
    titles = [f"{speed} s" for speed in results]
    figure = make_subplots(rows=len(rows), cols=len(results), column_titles=titles)
    for column, of_speed in enumerate(results.values(), 1):
        for row, (title, entry) in enumerate(rows.items(), 1):
            for place, (name, one) in enumerate(of_speed.items()):
                figure.add_box(
                    y=getattr(one, entry),
                    name=name,
                    boxpoints="all",
                    row=row,
                    col=column,
                    marker_color=colour(place),
                    showlegend=False,
                )
            if column == 1:
                figure.update_yaxes(title_text=title, row=row, col=column)
    figure.update_layout(height=1000, title="Time to the last iteration, accuracy at a fixed time")
    figure.write_html(path)
