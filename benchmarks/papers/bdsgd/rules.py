"""Outpace's cut-off rules compared with BDSGD's, on more clusters. See rules.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.papers.bdsgd.cut_offs.goals import filled_in, goals
from benchmarks.papers.bdsgd.cut_offs.measuring import measure_rules
from benchmarks.papers.bdsgd.cut_offs.results import markdown
from benchmarks.papers.claims import Claim

QUICK = (
    "seeds=1",
    "clusters=[i]",
    "rules=[all, fixed, elfving, last-5, rolling hedge]",
)


def run(data: Mapping[str, Any], out: Path) -> list[Claim]:
    """Measure and judge; print the tables of the README."""
    found = measure_rules(data)
    claims: list[Claim] = []
    for (cluster, observation), rows in found.items():
        claims += goals(cluster, observation, rows)
        if observation == "censored":
            claims += filled_in(cluster, rows, found.get((cluster, "full"), {}))
    for observation in data["observations"]:
        print(f"\n{markdown(found, observation)}\n")
    return claims
