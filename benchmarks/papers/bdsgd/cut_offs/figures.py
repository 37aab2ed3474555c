"""The paper's figures 1 and 3a: claims about the best cut-offs, and about a slow node.

Figure 1: throughput against the cut-off, for the three networks of cluster ii. Figure 3a and
section 4.1: cluster i, while a node is slow. All with full observation, as in the paper.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from benchmarks.papers.bdsgd.cut_offs.clusters import PAPERS_EVENT, four_nodes
from benchmarks.papers.bdsgd.cut_offs.measuring import Fits, Settings
from benchmarks.papers.claims import Claim
from benchmarks.papers.over_seeds import Spread

from outpace.predict.replay import replay
from outpace.predict.rules.making import make_rule
from outpace.predict.rules.settings import CutOffSettings

ITERATIONS: Final = 200
BDSGD: Final = "deep-markov"
WITHOUT_SLOW: Final = 158 - 40  # workers
_MOST: Final = 0.95  # of the iterations


def counts_with_a_slow_node(fits: Fits, settings: Settings) -> list[list[int]]:
    """Return the workers that BDSGD waits for while a node is slow, for each test run."""
    model, found = fits.model(BDSGD), []
    for seed in range(settings.seed, settings.seed + settings.repeats):
        run = four_nodes(ITERATIONS, seed)
        chosen = CutOffSettings(BDSGD, "count", warmup=1)
        rule = make_rule(chosen, node=run.node, seed=seed, fitted=model)
        counts = replay(rule, run.seconds, censored=False).count
        found.append(counts[model.needs : PAPERS_EVENT[2]].tolist())
    return found


def figure_3a(found: list[list[int]]) -> Claim:
    """Judge the claims of section 4.1 about the iterations in which a node is slow."""
    counts = np.array(found)
    share = Spread(tuple((counts <= WITHOUT_SLOW).mean(axis=1).tolist()))
    few = Spread(tuple(counts.mean(axis=1).tolist()))
    return Claim(
        "figure 3a, section 4.1: cluster i",
        "while a node is slow, BDSGD ignores its 40 workers and waits for nearly all others",
        f"at most {WITHOUT_SLOW} workers awaited in {100 * share.mean:.1f} ± "
        f"{100 * share.error:.1f} % of these iterations, {few:.1f} on average",
        share.mean >= _MOST and few.mean >= _MOST * WITHOUT_SLOW,
        margin=f"{100 * _MOST:g} % of the iterations, and of the {WITHOUT_SLOW} workers",
    )
