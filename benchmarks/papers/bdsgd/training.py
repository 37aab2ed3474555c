"""BDSGD: loss and accuracy against time on clusters i and iii. See training.yaml."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.papers.bdsgd.cut_offs.clusters import Recorded, four_nodes, switching_nodes
from benchmarks.papers.bdsgd.cut_offs.measuring import clusters
from benchmarks.papers.bdsgd.trainings import (
    ALL,
    Measured,
    measured,
    train,
    with_models,
)
from benchmarks.papers.claims import Claim
from benchmarks.papers.over_seeds import INTERVAL, all_of, show_spreads

QUICK = (
    "seeds=1",
    "clusters=[i]",
    "settings.i.experiment.task={kind: digits-mlp}",
    "settings.i.experiment.stop={virtual_time_s: 15}",
)

# number of iterations, and seed of a run: more than any worker completes in the given time
TEST: Final[Mapping[str, Callable[[int, int], Recorded]]] = {
    "i": four_nodes,
    "iii": switching_nodes,
}
BDSGD, POOLED, LAST, NEVER = "deep Markov", "pooled", "last-5", "asynchronous"
STATIC: Final = ("Chen", "Elfving")
Rows = Mapping[str, Measured]


def run(data: Mapping[str, Any], out: Path) -> list[Claim]:
    """Train, show and judge."""
    judged: list[Claim] = []
    for name in data["clusters"]:
        more = data["settings"][name]
        fitting = partial(with_models, out=out, name=name, seed=data["seed"])
        strategies = fitting(data["strategies"], clusters()[name].fit())
        repetitions = []
        for seed in range(data["seed"], data["seed"] + data["seeds"]):
            times = TEST[name](more["recorded"], seed).times
            experiment = {**data["experiment"], **more["experiment"], "seed": seed}
            repetitions.append(train(experiment, strategies, times, out / f"{name}-seed-{seed}"))
        rows = measured(repetitions)
        show_spreads(f"Cluster {name}", rows)
        judged += claims(f"cluster {name}", rows)
    return judged


def claims(where: str, rows: Rows) -> list[Claim]:
    """Judge the paper's claims about loss against time, and our own goals."""
    found = []
    if BDSGD in rows:
        others = [name for name in (ALL, *STATIC) if name in rows]
        found.append(
            _sooner(
                where,
                "predicted cut-offs train faster by the clock than waiting for all, Chen, Elfving",
                rows,
                BDSGD,
                others,
            )
        )
    if POOLED in rows:
        others = [name for name in rows if name not in (POOLED, NEVER, "oracle")]
        what = "goal: our model, re-planned, is at that loss sooner than every other cut-off"
        found.append(_sooner(where, what, rows, POOLED, others))
    if NEVER in rows and BDSGD in rows:
        mine, never = rows[BDSGD].final_loss, rows[NEVER].final_loss
        higher = never - mine
        found += [
            _sooner(where, "asynchronous training is sooner by the clock", rows, NEVER, [BDSGD]),
            Claim(
                where,
                "but converges to a higher validation loss",
                f"{NEVER} {never:.3f}, {BDSGD} {mine:.3f}: {higher.mean:+.3f} ± {higher.error:.3f}",
                mine.below(never),
                margin=INTERVAL,
            ),
        ]
    return found


def _sooner(where: str, what: str, rows: Rows, name: str, others: list[str]) -> Claim:
    """Judge whether a strategy reaches the loss sooner than each of the others."""
    seconds = {name: rows[name].seconds_to_loss for name in (name, *others)}
    each = [f"{strategy} {spread:.1f}" for strategy, spread in seconds.items()]
    return Claim(
        where,
        what,
        "s to the loss: " + ", ".join(each),
        all_of(seconds[name].below(seconds[other]) for other in others),
        margin=INTERVAL,
    )
