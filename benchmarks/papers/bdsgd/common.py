"""The pooled model beside the true law, where iterations share a factor. See common.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.papers.bdsgd.cut_offs.goals import beside_the_law
from benchmarks.papers.bdsgd.cut_offs.tables import fits_of, measure_rules, read_rules, show_rules
from benchmarks.papers.claims import Claim

QUICK = ("repeats=1", "clusters=[common-0.3x8]", "rules=[all, last-5]")


def run(data: Mapping[str, Any], out: Path) -> list[Claim]:
    """Measure; keep all in out/results.json; show and judge."""
    measure_rules(data, fits_of(data), out)
    return judge(out)


def judge(out: Path) -> list[Claim]:
    """Show and judge what `run` kept in this folder."""
    kept, _ = read_rules(out)
    claims: list[Claim] = []
    for (cluster, observation), rows in kept.items():
        show_rules(f"{cluster}, {observation}", rows)
        claims += beside_the_law(f"{cluster}, {observation}", rows)
    return claims
