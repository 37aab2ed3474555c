"""HPSGD: time to two accuracies, and the share of computing in it. See accuracy.yaml."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import Final

import numpy as np
from benchmarks.papers.claims import Claim
from benchmarks.papers.curves import Curve, Curves, Experiments, of_case
from benchmarks.papers.hpsgd.scaling import HPSGD, LOCAL, SSGD
from benchmarks.papers.over_seeds import Spread, all_of, over_seeds
from benchmarks.papers.pace import accuracy_at_end

QUICK = ("seeds=1",)

TARGETS: Final = (0.4, 0.8)
BOTH: Final = " and ".join(f"{target:.0%}" for target in TARGETS)
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
    def of(cls, run: Curve, accuracy: float) -> Split:
        """Return the split of the time to this accuracy."""
        seconds = run.seconds_to_error(1 - accuracy)
        if not math.isfinite(seconds):
            return cls(math.inf, math.inf, math.inf, math.inf)
        rows = run.trace("iteration", ["worker", "end_ns", *_SPANS])
        started, computed, held = (rows[name].to_numpy() / 1e9 for name in _SPANS)
        until = [np.minimum(times, seconds) for times in (started, computed, computed + held)]
        compute, wait = (float(span.sum()) / run.workers for span in np.diff(until, axis=0))
        last = rows.group_by("worker").aggregate([("end_ns", "max")])["end_ns_max"].to_numpy() / 1e9
        takes_part = float(np.minimum(last, seconds).sum()) / run.workers
        return cls(seconds, compute, max(0.0, takes_part - compute - wait), wait)


_SPANS: Final = ("start_ns", "computed_ns", "held_ns")


@dataclass(frozen=True, slots=True)
class Found:
    """Results of one strategy over the seeds."""

    splits: Mapping[float, Sequence[Split]]  # by accuracy
    final_accuracy: Spread

    @classmethod
    def of(cls, runs: Sequence[Curve]) -> Found:
        splits = {target: [Split.of(run, target) for run in runs] for target in TARGETS}
        return cls(splits, over_seeds(runs, accuracy_at_end))

    def seconds(self, target: float) -> Spread:
        return over_seeds(self.splits[target], lambda split: split.seconds)

    def computing(self, target: float) -> Spread:
        """Seconds of computing until the target; infinite if it was missed."""
        return over_seeds(self.splits[target], lambda split: split.compute_s)

    def shares(self, target: float) -> str:
        """Return compute / communicate / wait in per cent of the time."""
        splits, seconds = self.splits[target], self.seconds(target)
        if not math.isfinite(seconds.mean):
            return "never"
        if 0.0 in seconds.values:
            return "at once"
        parts = (attrgetter(part) for part in ("compute_s", "communicate_s", "wait_s"))
        shares = (over_seeds(splits, part) / seconds for part in parts)
        return " / ".join(f"{share.mean * 100:.0f}" for share in shares)


def claims(curves: Curves, experiments: Experiments) -> list[Claim]:
    """Judge the published claims, and the same claims with a straggler."""
    even, slow = (
        {name: Found.of(runs) for name, runs in of_case(curves, case).items()}
        for case in ("even", "one slow")
    )
    return [
        *_of_case("even", even),
        *_computing(even),
        *_of_case("one slow (not in the paper)", slow),
    ]


def _of_case(where: str, rows: Mapping[str, Found]) -> list[Claim]:
    hpsgd, ssgd = rows[HPSGD], rows[SSGD]
    apart = hpsgd.final_accuracy - ssgd.final_accuracy
    seconds = {name: [row.seconds(target) for target in TARGETS] for name, row in rows.items()}
    return [
        comes_first(where, BOTH, seconds),
        Claim(
            where,
            "after as many iterations HPSGD is as accurate as SSGD",
            f"{hpsgd.final_accuracy:.3f} against {ssgd.final_accuracy:.3f}, {apart:+.3f} apart",
            apart.near(0.0, IDENTICAL),
            margin=f"within {IDENTICAL:g}",
        ),
        Claim(
            where,
            "HPSGD spends no time but computing",
            f"until {TARGETS[-1]:.0%}, computing / communicating / waiting: "
            + "; ".join(f"{name} {row.shares(TARGETS[-1])} %" for name, row in rows.items()),
            all(
                split.communicate_s + split.wait_s <= 0.02 * split.seconds < math.inf
                for split in hpsgd.splits[TARGETS[-1]]
            ),
            margin="at most 2 % of the time",
        ),
    ]


def _computing(rows: Mapping[str, Found]) -> list[Claim]:
    """Judge the time that is spent computing, without a straggler."""
    spent = {name: [rows[name].computing(target) for target in TARGETS] for name in rows}
    hpsgd, ssgd, local = (spent[name] for name in (HPSGD, SSGD, LOCAL))
    ratios = [a / b for a, b in zip(hpsgd, ssgd, strict=True)]
    return [
        Claim(
            "figure 6 (a)",
            f"computing to {BOTH} takes HPSGD roughly as long as SSGD",
            f"{' and '.join(f'{ratio:.2f}' for ratio in ratios)} times as long: "
            + _listed({HPSGD: hpsgd, SSGD: ssgd}),
            all(ratio.near(1.0, ROUGHLY) for ratio in ratios),
            margin=f"within {ROUGHLY:.0%}",
        ),
        Claim(
            "figure 6 (a)",
            f"computing to {BOTH} takes Local SGD longer than SSGD and HPSGD",
            _listed({HPSGD: hpsgd, SSGD: ssgd, LOCAL: local}),
            all_of(
                less.below(more)
                for other in (ssgd, hpsgd)
                for less, more in zip(other, local, strict=True)
            ),
        ),
    ]


def comes_first(where: str, targets: str, seconds: Mapping[str, Sequence[Spread]]) -> Claim:
    """Judge whether HPSGD is the first at each target, and SSGD the last."""
    order = (HPSGD, LOCAL, SSGD)
    return Claim(
        where,
        f"HPSGD comes to {targets} before Local SGD, and that before SSGD",
        _listed({name: seconds[name] for name in order}),
        all_of(
            sooner.below(later)
            for one, other in pairwise(order)
            for sooner, later in zip(seconds[one], seconds[other], strict=True)
        ),
    )


def _listed(seconds: Mapping[str, Sequence[Spread]]) -> str:
    """Write the seconds of strategies to both targets."""
    return "; ".join(
        f"{name} {' and '.join(f'{each:.1f}' for each in of)} s" for name, of in seconds.items()
    )
