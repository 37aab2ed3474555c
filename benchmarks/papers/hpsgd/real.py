"""HPSGD's family in virtual time and in real processes. See real.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.papers.claims import Claim
from benchmarks.papers.over_seeds import Spread, all_of, show_spreads

from outpace import run as run_for_real
from outpace import simulate
from outpace.config.reading import experiment_from
from outpace.experiment.results import Result

QUICK = ("seeds=1", "experiment.stop={iterations: 10}")

WHERE: Final = "4 workers"
WITHIN: Final = 0.05  # the sleep of a process is not exact
SAME: Final = 1e-6  # of a parameter, for strategies whose order of events does not depend on time
IN_STEP: Final = ("SSGD", "Local SGD", "PSGD")


@dataclass(frozen=True, slots=True)
class Found:
    """Results of one strategy in virtual time and in real processes, by seed."""

    virtual_s: Spread
    wall_s: Spread
    ratio: Spread  # wall_s / virtual_s
    virtual_accuracy: Spread
    real_accuracy: Spread
    virtual_wait_s: Spread
    real_wait_s: Spread
    apart: Spread  # the parameter that differs most


def run(data: Mapping[str, Any], out: Path) -> list[Claim]:
    """Run every seed in both ways, show and judge."""
    measured: dict[str, list[tuple[float, ...]]] = {name: [] for name in data["strategies"]}
    for seed in range(data["seed"], data["seed"] + data["seeds"]):
        for name, sync in data["strategies"].items():
            strategy = {**data["experiment"], "seed": seed, "sync": sync}
            made = experiment_from(strategy, "hpsgd-real", Path(__file__).parent)
            place = out / f"seed-{seed}"
            virtual = simulate(made, place / "virtual" / name)
            real = run_for_real(made, place / "real" / name)
            measured[name].append(_compared(virtual, real))
    rows = {name: Found(*map(Spread, zip(*of, strict=True))) for name, of in measured.items()}
    show_spreads("4 workers, one half as fast", rows)
    return claims(rows)


def _compared(virtual: Result, real: Result) -> tuple[float, ...]:
    """Return the fields of `Found` on one seed."""
    one, other = virtual.parameters, real.parameters
    virtual_s, wall_s = virtual.summary["virtual_time_s"], real.summary["wall_time_s"]
    return (
        virtual_s,
        wall_s,
        wall_s / virtual_s,
        virtual.summary["accuracy"],
        real.summary["accuracy"],
        virtual.summary["seconds"]["wait"],
        real.summary["seconds"]["wait"],
        max(float((one[key] - other[key]).abs().max()) for key in one),
    )


def claims(rows: Mapping[str, Found]) -> list[Claim]:
    """Compare the real runs with the runs in virtual time, seed by seed."""
    worst = max(rows, key=lambda name: abs(rows[name].ratio.mean - 1))
    apart, differing = max((max(rows[name].apart.values), name) for name in IN_STEP)
    order = [
        (one, other)
        for one in rows.values()
        for other in rows.values()
        if (one.virtual_s * (1 + WITHIN)).below(other.virtual_s) is True
    ]
    hpsgd = rows["HPSGD"]
    by_wall_time = sorted(rows, key=lambda name: rows[name].wall_s.mean)
    return [
        Claim(
            WHERE,
            "(ours) the wall clock shows what virtual time said",
            f"furthest apart: {worst}, {rows[worst].ratio:.3f} times as long",
            rows[worst].ratio.near(1.0, WITHIN),
            margin=f"each strategy's mean within {WITHIN:.0%}",
        ),
        Claim(
            WHERE,
            f"(ours) {', '.join(IN_STEP)}: the same parameters",
            f"furthest apart: {differing}, {apart:.1e}",
            apart <= SAME,
            margin=f"within {SAME:g} on each seed",
        ),
        Claim(
            WHERE,
            "HPSGD never waits before its last step",
            f"waits of a worker in all: {hpsgd.real_wait_s:.2f} s; in virtual time, where it waits "
            f"in the last step only, {hpsgd.virtual_wait_s:.2f} s",
            (hpsgd.real_wait_s - hpsgd.virtual_wait_s).mean <= WITHIN * hpsgd.virtual_s.mean,
            margin=f"at most {WITHIN:.0%} of the run more",
        ),
        Claim(
            WHERE,
            "(ours) strategies are as fast, relative to each other, as virtual time said",
            "; ".join(f"{name} {rows[name].wall_s:.2f} s" for name in by_wall_time),
            all_of(one.wall_s.below(other.wall_s) for one, other in order) if order else None,
            margin=f"the order of those that virtual time has more than {WITHIN:.0%} apart",
        ),
    ]
