"""BDSGD, figures 1 to 4: cut-offs and the oracle's, on clusters i and ii. See clusters.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.papers.bdsgd.cut_offs import figures
from benchmarks.papers.bdsgd.cut_offs.goals import papers
from benchmarks.papers.bdsgd.cut_offs.measuring import Settings, measure_rules
from benchmarks.papers.claims import Claim

QUICK = ("repeats=2", "clusters=[ii-0.24]", "rules=[all, fixed, elfving]")


def run(data: Mapping[str, Any], out: Path) -> list[Claim]:
    """Measure and judge."""
    found = measure_rules(data)
    claims: list[Claim] = []
    if "i" in found.fits and f"{figures.BDSGD} count" in data["rules"]:
        counts = figures.counts_with_a_slow_node(found.fits["i"], Settings.of(data))
        claims.append(figures.figure_3a(counts))
    for (cluster, _), rows in found.kept.items():
        claims += papers(cluster, rows)
    return claims
