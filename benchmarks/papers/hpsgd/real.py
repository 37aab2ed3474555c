"""HPSGD's family in virtual time and in real processes. See real.yaml."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from benchmarks.papers.claims import Claim, show_rows
from benchmarks.papers.over_seeds import Spread, all_of

from outpace import run as run_for_real
from outpace import simulate
from outpace.config.reading import experiment_from
from outpace.experiment.results import Result

QUICK = ("repeats=1", "experiment.stop={iterations: 10}")

WHERE: Final = "4 workers"
WITHIN: Final = 0.05  # the sleep of a process is not exact
SAME: Final = 1e-6  # of a parameter, for strategies whose order of events does not depend on time
IN_STEP: Final = ("SSGD", "Local SGD", "PSGD")


class Pair(NamedTuple):
    """Results of one strategy with one seed, in virtual time and in real processes."""

    virtual_s: float
    wall_s: float
    virtual: Mapping[str, Any]
    real: Mapping[str, Any]
    apart: float  # the parameter that differs most


def run(data: Mapping[str, Any], out: Path) -> list[Claim]:
    """Run every seed in both ways, show and judge."""
    torch.set_num_threads(1)
    rows: dict[str, list[Pair]] = {name: [] for name in data["strategies"]}
    for seed in range(data["seed"], data["seed"] + data["repeats"]):
        for name, sync in data["strategies"].items():
            strategy = {**data["experiment"], "seed": seed, "sync": sync}
            made = experiment_from(strategy, "hpsgd-real", Path(__file__).parent)
            place = out / f"seed-{seed}"
            virtual = simulate(made, place / "virtual" / name)
            real = run_for_real(made, place / "real" / name)
            rows[name].append(_pair(virtual, real))
    _show(rows)
    return claims(rows)


def _pair(virtual: Result, real: Result) -> Pair:
    one, other = virtual.parameters, real.parameters
    return Pair(
        virtual.summary["virtual_time_s"],
        real.summary["wall_time_s"],
        virtual.summary,
        real.summary,
        max(float((one[key] - other[key]).abs().max()) for key in one),
    )


def claims(rows: Mapping[str, list[Pair]]) -> list[Claim]:
    """Compare the real runs with the runs in virtual time, seed by seed."""
    ratios = {name: _ratio(pairs) for name, pairs in rows.items()}
    worst = max(ratios, key=lambda name: abs(ratios[name].mean - 1))
    apart = max((pair.apart, name) for name in IN_STEP for pair in rows[name])
    said = {name: _over(pairs, lambda pair: pair.virtual_s) for name, pairs in rows.items()}
    seen = {name: _over(pairs, lambda pair: pair.wall_s) for name, pairs in rows.items()}
    order = [(a, b) for a in said for b in said if (said[a] * (1 + WITHIN)).below(said[b]) is True]
    waits = _over(rows["HPSGD"], lambda pair: pair.real["seconds"]["wait"])
    expected = _over(rows["HPSGD"], lambda pair: pair.virtual["seconds"]["wait"])
    return [
        Claim(
            WHERE,
            "(ours) the wall clock shows what virtual time said",
            f"furthest apart: {worst}, {ratios[worst]:.3f} times as long",
            ratios[worst].near(1.0, WITHIN),
            margin=f"each strategy's mean within {WITHIN:.0%}",
        ),
        Claim(
            WHERE,
            f"(ours) {', '.join(IN_STEP)}: the same parameters",
            f"furthest apart: {apart[1]}, {apart[0]:.1e}",
            apart[0] <= SAME,
            margin=f"within {SAME:g} on each seed",
        ),
        Claim(
            WHERE,
            "HPSGD never waits before its last step",
            f"waits of a worker in all: {waits:.2f} s; in virtual time, where it waits in the last "
            f"step only, {expected:.2f} s",
            (waits - expected).mean <= WITHIN * said["HPSGD"].mean,
            margin=f"at most {WITHIN:.0%} of the run more",
        ),
        Claim(
            WHERE,
            "(ours) strategies are as fast, relative to each other, as virtual time said",
            "; ".join(f"{name} {seen[name]:.2f} s" for name in sorted(seen, key=_by_mean(seen))),
            all_of(seen[a].below(seen[b]) for a, b in order) if order else None,
            margin=f"the order of those that virtual time has more than {WITHIN:.0%} apart",
        ),
    ]


def _over(pairs: list[Pair], quantity: Callable[[Pair], float]) -> Spread:
    return Spread(tuple(map(quantity, pairs)))


def _ratio(pairs: list[Pair]) -> Spread:
    return _over(pairs, lambda pair: pair.wall_s / pair.virtual_s)


def _by_mean(spreads: Mapping[str, Spread]) -> Callable[[str], float]:
    return lambda name: spreads[name].mean


def _show(rows: Mapping[str, list[Pair]]) -> None:
    def both(pairs: list[Pair], key: str, digits: int) -> str:
        virtual = _over(pairs, lambda pair: pair.virtual[key])
        real = _over(pairs, lambda pair: pair.real[key])
        return f"{virtual:.{digits}f} / {real:.{digits}f}"

    cells = {
        name: {
            "virtual s": f"{_over(pairs, lambda pair: pair.virtual_s):.2f}",
            "wall s": f"{_over(pairs, lambda pair: pair.wall_s):.2f}",
            "ratio": f"{_ratio(pairs):.3f}",
            "accuracy": both(pairs, "accuracy", 3),
            "synchronizations": both(pairs, "synchronizations", 1),
            "parameters apart": f"{max(pair.apart for pair in pairs):.0e}",
        }
        for name, pairs in rows.items()
    }
    show_rows("4 workers, one half as fast", cells)
