"""BDSGD, figures 2 to 4: cut-offs and the oracle's, on clusters i and ii. See clusters.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.papers.bdsgd.cut_offs.clusters import PAPERS_EVENT, four_nodes
from benchmarks.papers.bdsgd.cut_offs.goals import BDSGD, papers
from benchmarks.papers.bdsgd.cut_offs.measuring import clusters, fitted, measure_rules
from benchmarks.papers.claims import Claim
from benchmarks.papers.over_seeds import Spread

from outpace.predict.replay import replay
from outpace.predict.rules.making import make_rule
from outpace.predict.rules.settings import CutOffSettings

QUICK = ("seeds=2", "clusters=[i]", "rules=[all, fixed, deep-markov count]")

ITERATIONS: Final = 200
WITHOUT_SLOW: Final = 158 - 40  # workers
_MOST: Final = 0.95  # of the iterations


def run(data: Mapping[str, Any], out: Path) -> list[Claim]:
    """Measure and judge, with full observation as in the paper."""
    found = measure_rules(data)
    claims = [claim for (cluster, _), rows in found.items() for claim in papers(cluster, rows)]
    if "i" in data["clusters"] and BDSGD in data["rules"]:
        return [_figure_3a(data["seed"], data["seeds"]), *claims]
    return claims


def _figure_3a(first: int, seeds: int) -> Claim:
    """Judge section 4.1: the workers that BDSGD waits for while a node of cluster i is slow."""
    model, found = fitted(clusters()["i"], "deep-markov", first), []
    for seed in range(first, first + seeds):
        run = four_nodes(ITERATIONS, seed)
        chosen = CutOffSettings("deep-markov", "count", warmup=1)
        rule = make_rule(chosen, node=run.node, seed=seed, fitted=model)
        counts = replay(rule, run.seconds, censored=False).count
        found.append(counts[model.needs : PAPERS_EVENT[2]])
    share = Spread(tuple(float((counts <= WITHOUT_SLOW).mean()) for counts in found))
    few = Spread(tuple(float(counts.mean()) for counts in found))
    return Claim(
        "figure 3a, section 4.1: cluster i",
        "while a node is slow, BDSGD ignores its 40 workers and waits for nearly all others",
        f"at most {WITHOUT_SLOW} workers awaited in {share * 100:.1f} % of these iterations, "
        f"{few:.1f} on average",
        share.mean >= _MOST and few.mean >= _MOST * WITHOUT_SLOW,
        margin=f"{100 * _MOST:g} % of the iterations, and of the {WITHOUT_SLOW} workers",
    )
