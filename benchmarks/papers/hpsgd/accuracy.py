"""HPSGD: time to two accuracies, without stragglers and with. See accuracy.yaml."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from benchmarks.papers import bursts
from benchmarks.papers.bdsgd.trainings import keep, with_error
from benchmarks.papers.claims import Claim
from benchmarks.papers.comparing import compare_with_bars
from benchmarks.papers.curves import Curve, read_curve
from benchmarks.papers.hpsgd.scaling import HPSGD, LOCAL, SSGD
from benchmarks.papers.pace import accuracy_between
from benchmarks.papers.psp.settings import seconds_to_error
from plotly.subplots import make_subplots
from rich.console import Console
from rich.table import Table

from outpace.experiment.comparison import variants_from
from outpace.predict.recorded import write
from outpace.record.folder import TRACE
from outpace.report.figures.figure import colour
from outpace.sync import POLICIES

QUICK = ("repeats=1", "cases=[even]", "experiment.stop={virtual_time_s: 15}")

PICTURE: Final = "accuracy.html"
PSSP, CUTOFFS = "PSSP", "pooled cut-offs"
EVEN, SLOW, BURSTS = "even", "two slow", "two in bursts"
ROUGHLY: Final = 0.2  # "roughly the same"; the figure's numbers are not legible in the text at hand


@dataclass(frozen=True, slots=True)
class Split:
    """A worker's mean seconds of each activity. communicate_s: all but computing and waiting."""

    seconds: float  # infinite if the accuracy was not reached; then the others are nan
    compute_s: float
    communicate_s: float
    wait_s: float

    @classmethod
    def of(cls, folder: Path, workers: int, seconds: float) -> Split:
        if not math.isfinite(seconds):
            return cls(math.inf, math.nan, math.nan, math.nan)
        table = pq.read_table(folder / TRACE, columns=["event", *_SPANS])
        rows = table.filter(pc.equal(pc.cast(table["event"], "string"), "iteration"))
        started, computed, held = (rows[name].to_numpy() / 1e9 for name in _SPANS)
        until = [np.minimum(times, seconds) for times in (started, computed, computed + held)]
        compute, wait = (float(span.sum()) / workers for span in np.diff(until, axis=0))
        return cls(seconds, compute, max(0.0, seconds - compute - wait), wait)


_SPANS: Final = ("start_ns", "computed_ns", "held_ns")


@dataclass(frozen=True, slots=True)
class Found:
    """Results of one strategy, one entry for each repetition."""

    splits: dict[str, list[Split]]  # by accuracy
    final_accuracy: list[float]  # the mean over the last tenth of the time
    as_far: list[float]  # and of as many gradients as the slowest strategy has
    gradients_per_s: list[float]

    def seconds(self, target: str) -> list[float]:
        return [split.seconds for split in self.splits[target]]


Rows = Mapping[str, Found]  # by strategy


def run(data: Mapping[str, Any], out: Path) -> list[Claim]:
    """Train, draw out/accuracy.html, and write all results to out/results.json."""
    torch.set_num_threads(1)
    results, first = {}, {}
    for case in data["cases"]:
        repetitions = [
            _train(data, case, seed, out / f"{case}-seed-{seed}")
            for seed in range(data["seed"], data["seed"] + data["repeats"])
        ]
        results[case] = found(repetitions, data["targets"])
        first[case] = repetitions[0]
        _show(case, results[case])
    keep(results, out)
    draw(first, out / PICTURE)
    print(f"report: {out / PICTURE}")
    return [claim for case, rows in results.items() for claim in claims(case, rows)]


def _train(data: Mapping[str, Any], case: str, seed: int, out: Path) -> dict[str, Curve]:
    """Train with each strategy, in out/STRATEGY."""
    step_s, workers = data["step_s"], data["workers"]
    compute: dict[str, Any] = {"kind": "lognormal", "mean_s": step_s, "cv": bursts.NOISE}
    if case == SLOW:
        compute["slow"] = [{"workers": data["slow"], "factor": data["slower"]}]
    if case == BURSTS:
        path = out.parent / f"{out.name}.parquet"
        write(bursts.drawn(2000, seed), path)
        scale = step_s / bursts.USUAL_S
        compute = {"kind": "trace", "path": str(path.resolve()), "scale": scale}
    base = {"seed": seed, "workers": workers, "compute": compute, **data["experiment"]}
    beside = {"servers": workers, "colocate": True}
    variants = [
        {"name": name, "sync": sync, **(beside if sync["kind"] in POLICIES else {})}
        for name, sync in data["strategies"].items()
    ]
    compare_with_bars(
        variants_from(base | {"variants": variants}, out.name, Path(__file__).parent), out
    )
    return {name: read_curve(out / name) for name in data["strategies"]}


def found(repetitions: Sequence[Mapping[str, Curve]], targets: Sequence[float]) -> dict[str, Found]:
    """Return the results by strategy."""
    ends = [min(run.gradients[-1] for run in curves.values()) for curves in repetitions]
    return {
        name: _found([curves[name] for curves in repetitions], ends, targets)
        for name in repetitions[0]
    }


def _found(runs: Sequence[Curve], ends: Sequence[float], targets: Sequence[float]) -> Found:
    splits = {
        f"{target:g}": [
            Split.of(run.folder, run.workers, seconds_to_error(run, 1 - target))
            for run in runs
            if run.folder is not None
        ]
        for target in targets
    }
    return Found(
        splits,
        [accuracy_between(run, 0.9 * run.seconds[-1], run.seconds[-1]) for run in runs],
        [
            accuracy_between(replace(run, seconds=run.gradients), 0.9 * end, end)
            for run, end in zip(runs, ends, strict=True)
        ],
        [run.summary["gradients_applied"] / run.seconds[-1] for run in runs],
    )


def claims(case: str, rows: Rows) -> list[Claim]:
    """Judge the published claims for equal workers, and the same claims with stragglers."""
    low, high = next(iter(rows.values())).splits
    of_hpsgd, least = rows[HPSGD], rows[SSGD]
    where = case if case == EVEN else f"{case} (not in the paper)"
    apart = float(np.mean(of_hpsgd.as_far) - np.mean(least.as_far))
    with_servers = [name for name in rows if name in (PSSP, CUTOFFS)]
    return [
        Claim(
            where,
            "HPSGD comes to both accuracies before Local SGD, and that before SSGD",
            "; ".join(
                f"{name} {_s(rows[name], low)} and {_s(rows[name], high)} s"
                for name in (HPSGD, LOCAL, SSGD)
            ),
            all(
                _mean(of_hpsgd, target) < _mean(rows[LOCAL], target) < _mean(least, target)
                for target in (low, high)
            ),
        ),
        Claim(
            "figure 6 (a)" if case == EVEN else where,
            "computing alone takes as long for HPSGD as for SSGD to both accuracies, and longer "
            "for Local SGD",
            "; ".join(
                f"{name} {_computed(rows[name], low):.1f} and {_computed(rows[name], high):.1f} s"
                for name in (HPSGD, SSGD, LOCAL)
            ),
            all(_computes_as_published(rows, target) for target in (low, high)),
            margin=f"HPSGD within {ROUGHLY:.0%} of SSGD, Local SGD above both",
        ),
        Claim(
            where,
            "HPSGD is as accurate as SSGD",
            f"after as many gradients {with_error(of_hpsgd.as_far, 3)} against "
            f"{with_error(least.as_far, 3)}, at the end "
            f"{with_error(of_hpsgd.final_accuracy, 3)} against "
            f"{with_error(least.final_accuracy, 3)}",
            apart >= -0.03,
            margin="at most 0.03 below, after as many gradients",
        ),
        Claim(
            where,
            "HPSGD spends no time but computing",
            f"until {high}: " + "; ".join(f"{name} {_shares(rows[name], high)}" for name in rows),
            all(
                split.communicate_s + split.wait_s <= 0.02 * split.seconds
                for split in of_hpsgd.splits[high]
            ),
            margin="at most 2 % of the time",
        ),
        Claim(
            f"{case} (not in the paper)",
            "HPSGD is there before PSSP and predicted cut-offs",
            f"to {high}: HPSGD {_s(of_hpsgd, high)}, "
            + ", ".join(f"{name} {_s(rows[name], high)}" for name in with_servers)
            + " s",
            all(_mean(of_hpsgd, high) < _mean(rows[name], high) for name in with_servers),
        ),
    ]


def _mean(row: Found, target: str) -> float:
    return float(np.mean(row.seconds(target)))


def _computed(row: Found, target: str) -> float:
    """Return the mean seconds of computing until the target; infinite if it was missed."""
    splits = row.splits[target]
    missed = any(not math.isfinite(split.seconds) for split in splits)
    return math.inf if missed else float(np.mean([split.compute_s for split in splits]))


def _computes_as_published(rows: Rows, target: str) -> bool:
    hpsgd, ssgd, local = (_computed(rows[name], target) for name in (HPSGD, SSGD, LOCAL))
    return abs(hpsgd - ssgd) <= ROUGHLY * ssgd and max(hpsgd, ssgd) < local < math.inf


def _s(row: Found, target: str) -> str:
    return with_error(row.seconds(target), 1)


def _shares(row: Found, target: str) -> str:
    """Return compute / communicate / wait in per cent of the time."""
    splits = [split for split in row.splits[target] if math.isfinite(split.seconds)]
    if not splits:
        return "never"
    whole = sum(split.seconds for split in splits) or 1.0
    parts = ("compute_s", "communicate_s", "wait_s")
    return " / ".join(
        f"{100 * sum(getattr(s, part) for s in splits) / whole:.0f}" for part in parts
    )


def _show(case: str, rows: Rows) -> None:
    targets = list(next(iter(rows.values())).splits)
    columns = [word for target in targets for word in (f"s to {target}", "comp / comm / wait, %")]
    shown = Table(
        "strategy", *columns, "as many gradients", "at the end", "gradients/s", title=case
    )
    for name, row in rows.items():
        cells = [word for target in targets for word in (_s(row, target), _shares(row, target))]
        accuracies = with_error(row.as_far, 3), with_error(row.final_accuracy, 3)
        end = *accuracies, with_error(row.gradients_per_s, 1)
        shown.add_row(name, *cells, *end)
    Console(width=150).print(shown)


def draw(cases: Mapping[str, Mapping[str, Curve]], path: Path) -> None:
    """Draw accuracy over time, a panel for each case."""
    figure = make_subplots(rows=1, cols=len(cases), subplot_titles=list(cases), shared_yaxes=True)
    for column, curves in enumerate(cases.values(), 1):
        for place, (name, run) in enumerate(curves.items()):
            figure.add_scatter(
                x=run.seconds,
                y=run.accuracy,
                name=name,
                row=1,
                col=column,
                marker_color=colour(place),
                mode="lines",
                showlegend=column == 1,
            )
    figure.update_xaxes(title_text="virtual time (s)")
    figure.update_yaxes(title_text="test accuracy", col=1)
    figure.update_layout(title="Accuracy over time, without stragglers and with")
    figure.write_html(path)
