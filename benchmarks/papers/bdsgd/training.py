"""BDSGD: loss and accuracy against time on clusters i and iii. See training.yaml."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from benchmarks.papers.bdsgd.cut_offs.clusters import Recorded, four_nodes, switching_nodes
from benchmarks.papers.bdsgd.cut_offs.measuring import clusters
from benchmarks.papers.bdsgd.cut_offs.results import error
from benchmarks.papers.bdsgd.trainings import (
    ALL,
    Measured,
    draw,
    keep,
    measured,
    show,
    table,
    train,
    with_error,
    with_models,
)
from benchmarks.papers.claims import Claim

QUICK = (
    "repeats=1",
    "clusters=[i]",
    "settings.i.experiment.task={kind: digits-mlp}",
    "settings.i.experiment.stop={virtual_time_s: 15}",
)

# So many iterations, and a run's seed: more than any worker does in the time that there is.
TEST: Final[Mapping[str, Callable[[int, int], Recorded]]] = {
    "i": four_nodes,
    "iii": switching_nodes,
}
BDSGD, POOLED, LAST, NEVER = "deep Markov", "pooled", "last-5", "asynchronous"
STATIC: Final = ("Chen", "Elfving")
Rows = Mapping[str, Measured]


def run(data: Mapping[str, Any], out: Path) -> list[Claim]:
    """Train, draw out/CLUSTER.html, and write all results to out/results.json."""
    torch.set_num_threads(1)
    results: dict[str, Rows] = {}
    for name in data["clusters"]:
        more = data["settings"][name]
        fitting = partial(with_models, out=out, name=name, seed=data["seed"])
        strategies = fitting(data["strategies"], clusters(".")[name].fit())
        repetitions = []
        for seed in range(data["seed"], data["seed"] + data["repeats"]):
            times = table(TEST[name](more["recorded"], seed))
            experiment = {**data["experiment"], **more["experiment"], "seed": seed}
            repetitions.append(train(experiment, strategies, times, out / f"{name}-seed-{seed}"))
        draw(f"Cluster {name}", repetitions[0], out / f"{name}.html")
        results[name] = measured(repetitions)
        keep(results, out)
        show(f"Cluster {name}", results[name])
        print(f"report: {out / f'{name}.html'}")
    return [claim for name, rows in results.items() for claim in claims(f"cluster {name}", rows)]


def claims(where: str, rows: Rows) -> list[Claim]:
    """Judge the paper's claims about loss against time, and our own goals."""
    found = []
    if BDSGD in rows:
        others = [name for name in (ALL, *STATIC) if name in rows]
        found.append(
            Claim(
                where,
                "predicted cut-offs train faster by the clock than waiting for all, Chen, Elfving",
                _times(rows, [BDSGD, *others]),
                all(_mean(rows[BDSGD]) <= _mean(rows[name]) for name in others),
            )
        )
    if POOLED in rows:
        others = [name for name in rows if name not in (POOLED, NEVER, "oracle")]
        found.append(
            Claim(
                where,
                "goal: our model, re-planned, is at that loss no later than every other cut-off",
                _times(rows, [POOLED, *others]),
                all(_mean(rows[POOLED]) <= _mean(rows[name]) for name in others),
            )
        )
    if NEVER in rows and BDSGD in rows:
        loss = {name: with_error(rows[name].final_loss, 3) for name in (NEVER, BDSGD)}
        higher = np.subtract(rows[NEVER].final_loss, rows[BDSGD].final_loss)
        found += [
            Claim(
                where,
                "asynchronous training is sooner by the clock",
                _times(rows, [NEVER, BDSGD]),
                _mean(rows[NEVER]) < _mean(rows[BDSGD]),
            ),
            Claim(
                where,
                "but converges to a higher validation loss",
                ", ".join(f"{name} {value}" for name, value in loss.items()),
                bool(higher.mean() > 2 * error(list(higher))) if len(higher) > 1 else None,
                margin="higher by two standard errors (two seeds or more)",
            ),
        ]
    return found


def _times(rows: Rows, names: list[str]) -> str:
    each = [f"{name} {with_error(rows[name].seconds_to_loss, 1)}" for name in names]
    return "s to the loss: " + ", ".join(each)


def _mean(row: Measured) -> float:
    return float(np.mean(row.seconds_to_loss))
