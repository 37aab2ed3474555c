"""HPSGD: time to two accuracies, and the share of computing in it. See accuracy.yaml."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from benchmarks.papers.claims import Claim, Verdict, show_rows
from benchmarks.papers.curves import Curve, curves_of
from benchmarks.papers.hpsgd.scaling import HPSGD, LOCAL, SSGD
from benchmarks.papers.over_seeds import Spread, all_of
from benchmarks.papers.pace import accuracy_between
from benchmarks.papers.psp.settings import seconds_to_error

from outpace.experiment.comparison import variants_from
from outpace.record.folder import TRACE

QUICK = ("repeats=1", "cases=[even]")

EVEN: Final = "even"
ROUGHLY: Final = 0.2  # of computing times that are "roughly the same"
IDENTICAL: Final = 0.02  # of accuracies that are "generally identical"


@dataclass(frozen=True, slots=True)
class Split:
    """A worker's mean seconds of each activity, until its last iteration.

    communicate_s: everything except computing and waiting.
    """

    # infinite if the accuracy was not reached; then the other values are also infinite
    seconds: float
    compute_s: float
    communicate_s: float
    wait_s: float

    @classmethod
    def of(cls, folder: Path, workers: int, seconds: float) -> Split:
        if not math.isfinite(seconds):
            return cls(math.inf, math.inf, math.inf, math.inf)
        table = pq.read_table(folder / TRACE, columns=["event", "worker", "end_ns", *_SPANS])
        rows = table.filter(pc.equal(pc.cast(table["event"], "string"), "iteration"))
        started, computed, held = (rows[name].to_numpy() / 1e9 for name in _SPANS)
        until = [np.minimum(times, seconds) for times in (started, computed, computed + held)]
        compute, wait = (float(span.sum()) / workers for span in np.diff(until, axis=0))
        last = rows.group_by("worker").aggregate([("end_ns", "max")])["end_ns_max"].to_numpy() / 1e9
        takes_part = float(np.minimum(last, seconds).sum()) / workers
        return cls(seconds, compute, max(0.0, takes_part - compute - wait), wait)


_SPANS: Final = ("start_ns", "computed_ns", "held_ns")


@dataclass(frozen=True, slots=True)
class Found:
    """Results of one strategy, by seed."""

    splits: dict[str, list[Split]]  # by accuracy
    final_accuracy: Spread  # the mean over the last tenth of the run

    def seconds(self, target: str) -> Spread:
        return Spread(tuple(split.seconds for split in self.splits[target]))

    def computing(self, target: str) -> Spread:
        """Seconds of computing until the target; infinite if it was missed."""
        return Spread(tuple(split.compute_s for split in self.splits[target]))

    def share(self, target: str, part: str) -> Spread:
        return Spread(tuple(getattr(s, part) / s.seconds for s in self.splits[target]))


Rows = Mapping[str, Found]  # by strategy


def run(data: Mapping[str, Any], out: Path) -> list[Claim]:
    """Train, show and judge."""
    torch.set_num_threads(1)
    judged: list[Claim] = []
    for case in data["cases"]:
        repetitions = [
            _train(data, case, seed, out / f"{case}-seed-{seed}")
            for seed in range(data["seed"], data["seed"] + data["repeats"])
        ]
        rows = found(repetitions, data["targets"])
        _show(case, rows)
        judged += claims(case, rows)
    return judged


def _train(data: Mapping[str, Any], case: str, seed: int, out: Path) -> dict[str, Curve]:
    """Train with each strategy, in out/STRATEGY."""
    compute = {"kind": "lognormal", "mean_s": data["step_s"], "cv": data["spread"]}
    if case != EVEN:
        compute["slow"] = data["slow"]
    base = {
        **data["experiment"],
        "seed": seed,
        "workers": data["workers"],
        "compute": compute,
        "variants": [{"name": name, "sync": sync} for name, sync in data["strategies"].items()],
    }
    found = curves_of(variants_from(base, out.name, Path(__file__).parent), out)
    return {name: curve for name, (curve,) in found.items()}


def found(repetitions: Sequence[Mapping[str, Curve]], targets: Sequence[float]) -> dict[str, Found]:
    """Return the results by strategy."""
    return {
        name: _found([curves[name] for curves in repetitions], targets) for name in repetitions[0]
    }


def _found(runs: Sequence[Curve], targets: Sequence[float]) -> Found:
    splits = {
        f"{target:g}": [
            Split.of(run.folder, run.workers, seconds_to_error(run, 1 - target))
            for run in runs
            if run.folder is not None
        ]
        for target in targets
    }
    ends = (accuracy_between(run, 0.9 * run.seconds[-1], run.seconds[-1]) for run in runs)
    return Found(splits, Spread(tuple(ends)))


def claims(case: str, rows: Rows) -> list[Claim]:
    """Judge the published claims, and the same claims with a straggler."""
    of_hpsgd, local, least = rows[HPSGD], rows[LOCAL], rows[SSGD]
    targets = list(of_hpsgd.splits)
    where = case if case == EVEN else f"{case} (not in the paper)"
    apart = of_hpsgd.final_accuracy - least.final_accuracy
    both = " and ".join(f"{float(target):.0%}" for target in targets)
    found = [
        Claim(
            where,
            f"HPSGD comes to {both} before Local SGD, and that before SSGD",
            _seconds({name: rows[name].seconds for name in (HPSGD, LOCAL, SSGD)}, targets),
            all_of(
                one.seconds(target).below(other.seconds(target))
                for one, other in ((of_hpsgd, local), (local, least))
                for target in targets
            ),
        ),
        Claim(
            where,
            "after as many iterations HPSGD is as accurate as SSGD",
            f"{of_hpsgd.final_accuracy:.3f} against {least.final_accuracy:.3f}, {apart:+.3f} apart",
            apart.near(0.0, IDENTICAL),
            margin=f"within {IDENTICAL:g}",
        ),
        Claim(
            where,
            "HPSGD spends no time but computing",
            f"until {float(targets[-1]):.0%}, computing / communicating / waiting: "
            + "; ".join(f"{name} {_shares(row, targets[-1])} %" for name, row in rows.items()),
            all(
                split.communicate_s + split.wait_s <= 0.02 * split.seconds
                for split in of_hpsgd.splits[targets[-1]]
            ),
            margin="at most 2 % of the time",
        ),
    ]
    if case != EVEN:
        return found
    computing = {name: rows[name].computing for name in (HPSGD, SSGD, LOCAL)}
    ratios = [of_hpsgd.computing(target) / least.computing(target) for target in targets]
    return [
        *found,
        Claim(
            "figure 6 (a)",
            f"computing to {both} takes HPSGD roughly as long as SSGD",
            f"{' and '.join(f'{ratio:.2f}' for ratio in ratios)} times as long: "
            + _seconds({name: computing[name] for name in (HPSGD, SSGD)}, targets),
            all(ratio.near(1.0, ROUGHLY) for ratio in ratios),
            margin=f"within {ROUGHLY:.0%}",
        ),
        Claim(
            "figure 6 (a)",
            f"computing to {both} takes Local SGD longer than SSGD and HPSGD",
            _seconds(computing, targets),
            _local_takes_longer(rows, targets),
        ),
    ]


def _local_takes_longer(rows: Rows, targets: Sequence[str]) -> Verdict:
    return all_of(
        rows[name].computing(target).below(rows[LOCAL].computing(target))
        for name in (SSGD, HPSGD)
        for target in targets
    )


def _seconds(rows: Mapping[str, Any], targets: Sequence[str]) -> str:
    """Write seconds of strategies; each is a function of the target."""
    return "; ".join(
        f"{name} {' and '.join(f'{of(target):.1f}' for target in targets)} s"
        for name, of in rows.items()
    )


def _shares(row: Found, target: str) -> str:
    """Return compute / communicate / wait in per cent of the time."""
    seconds = row.seconds(target)
    if 0.0 in seconds.values or not math.isfinite(seconds.mean):
        return "at once" if math.isfinite(seconds.mean) else "never"
    parts = ("compute_s", "communicate_s", "wait_s")
    return " / ".join(f"{row.share(target, part).mean * 100:.0f}" for part in parts)


def _show(name: str, rows: Rows) -> None:
    cells = {}
    for strategy, row in rows.items():
        cells[strategy] = {"at the end": f"{row.final_accuracy:.3f}"}
        for target in row.splits:
            cells[strategy][f"s to {target}"] = f"{row.seconds(target):.1f}"
            cells[strategy][f"{target}: comp / comm / wait, %"] = _shares(row, target)
    show_rows(name, cells)
