"""HPSGD's family in virtual time and for real. See real.yaml."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from benchmarks.papers.claims import Claim
from rich.console import Console
from rich.table import Table

from outpace import run as run_for_real
from outpace import simulate
from outpace.config.reading import experiment_from
from outpace.experiment.results import Result
from outpace.report import write_report

QUICK = ("repeats=1", "experiment.stop={iterations: 10}")

WITHIN: Final = (
    0.05  # of the wall clock; the sleep of a process is not exact, nor is the machine idle
)
SAME: Final = 1e-6  # of a parameter, where the order of what happens does not depend on time
IN_STEP: Final = ("SSGD", "Local SGD", "PSGD")


class Pair(NamedTuple):
    """Results of one strategy with one seed, in virtual time and for real."""

    virtual_s: float
    wall_s: float
    virtual: Mapping[str, Any]
    real: Mapping[str, Any]
    apart: float  # the parameter that differs most


def run(data: Mapping[str, Any], out: Path) -> list[Claim]:
    """Run every seed in both ways; draw out/real.html and out/virtual.html of the first seed."""
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
    for kind in ("virtual", "real"):
        folders = [out / f"seed-{data['seed']}" / kind / name for name in rows]
        write_report(folders, out / f"{kind}.html")
        print(f"report: {out / f'{kind}.html'}")
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
    worst = max(rows, key=lambda name: abs(_ratio(rows[name]) - 1))
    apart = max((pair.apart, name) for name in IN_STEP for pair in rows[name])
    waits = max(pair.real["seconds"]["wait"] for pair in rows["HPSGD"])
    said = {
        name: float(np.mean([pair.virtual_s for pair in pairs])) for name, pairs in rows.items()
    }
    seen = {name: float(np.mean([pair.wall_s for pair in pairs])) for name, pairs in rows.items()}
    apart_enough = [(a, b) for a in said for b in said if said[a] * (1 + WITHIN) < said[b]]
    return [
        Claim(
            "4 workers",
            f"(ours) the wall clock shows what virtual time said, within {100 * WITHIN:.0f} %",
            f"furthest apart: {worst}, {_ratio(rows[worst]):.3f} times as long",
            abs(_ratio(rows[worst]) - 1) <= WITHIN,
        ),
        Claim(
            "4 workers",
            f"(ours) {', '.join(IN_STEP)}: the same parameters, within {SAME:g}",
            f"furthest apart: {apart[1]}, {apart[0]:.1e}",
            apart[0] <= SAME,
        ),
        Claim(
            "4 workers",
            "HPSGD never waits before its last step",
            f"{waits:.2f} s of waiting in all, per worker; virtual time: "
            f"{max(p.virtual['seconds']['wait'] for p in rows['HPSGD']):.2f} s",
            None,
        ),
        Claim(
            "4 workers",
            "(ours) strategies are as fast, relative to each other, as virtual time said",
            f"for real: {', '.join(sorted(seen, key=lambda name: seen[name]))}",
            all(seen[a] < seen[b] for a, b in apart_enough),
        ),
    ]


def _ratio(pairs: list[Pair]) -> float:
    return float(np.mean([pair.wall_s / pair.virtual_s for pair in pairs]))


def _show(rows: Mapping[str, list[Pair]]) -> None:
    table = Table(title="4 workers, one half as fast")
    for title in ("", "virtual s", "wall s", "ratio", "accuracy", "synchronizations", "apart"):
        table.add_column(title, justify="left" if not title else "right")

    def both(pairs: list[Pair], read: Callable[[Mapping[str, Any]], float], digits: int) -> str:
        found = (np.mean([read(getattr(p, kind)) for p in pairs]) for kind in ("virtual", "real"))
        return " / ".join(f"{value:.{digits}f}" for value in found)

    for name, pairs in rows.items():
        table.add_row(
            name,
            f"{np.mean([pair.virtual_s for pair in pairs]):.2f}",
            f"{np.mean([pair.wall_s for pair in pairs]):.2f}",
            f"{_ratio(pairs):.3f}",
            both(pairs, lambda summary: summary["accuracy"], 3),
            both(pairs, lambda summary: summary["synchronizations"], 1),
            f"{max(pair.apart for pair in pairs):.0e}",
        )
    Console().print(table)
