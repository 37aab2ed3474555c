"""Outpace's cut-off rules beside BDSGD's, on more clusters. See rules.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.papers.bdsgd.cut_offs.goals import filled_in, goals
from benchmarks.papers.bdsgd.cut_offs.picture import draw
from benchmarks.papers.bdsgd.cut_offs.tables import (
    fits_of,
    markdown,
    measure_rules,
    read_rules,
    show_rules,
)
from benchmarks.papers.claims import Claim

QUICK = (
    "repeats=1",
    "clusters=[i]",
    "rules=[all, fixed, elfving, last-5, rolling hedge]",
)


def run(data: Mapping[str, Any], out: Path) -> list[Claim]:
    """Measure; keep all in out/results.json; draw, show and judge."""
    measure_rules(data, fits_of(data), out)
    return judge(out)


def judge(out: Path) -> list[Claim]:
    """Show, draw and judge what `run` kept in this folder."""
    kept, workers = read_rules(out)
    claims: list[Claim] = []
    for (cluster, observation), rows in kept.items():
        show_rules(f"{cluster}, {observation}", rows)
        claims += goals(cluster, observation, workers[cluster], rows)
        if observation == "censored":
            claims += filled_in(cluster, rows, kept.get((cluster, "full"), {}))
    for observation in dict.fromkeys(observation for _, observation in kept):
        print(f"\n{markdown(kept, observation)}\n")
    titled = {", ".join(title): rows for title, rows in kept.items()}
    print(f"picture: {draw(titled, out)}")
    return claims
