"""The paper's figures 1, 2 and 3a: what is in them, and claims about the first two.

Figure 1: throughput against the cut-off, for the three networks of cluster ii. Figure 2: cluster
i, iteration by iteration. Figure 3a: of two iterations of cluster i, the run times in ascending
order beside the predicted ones. All with full observation, as in the paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from benchmarks.papers.bdsgd.cut_offs.clusters import PAPERS_EVENT, SPEEDS, drifting, four_nodes
from benchmarks.papers.bdsgd.cut_offs.measuring import Fits, Settings
from benchmarks.papers.claims import Claim
from benchmarks.papers.over_seeds import Spread

from outpace.predict.interface import Model
from outpace.predict.replay import Replay, replay
from outpace.predict.rules.making import make_rule
from outpace.predict.rules.settings import CutOffSettings

Plain = Mapping[str, Any]

ITERATIONS: Final = 200
SHOWN: Final = (1, 50, 100, 150, 200)  # iterations whose run times figure 2 shows
PREDICTED: Final = (50, 150)  # in figure 3a: one while a node is slow, one after that
WITHOUT_SLOW: Final = 158 - 40  # workers
RULES: Final = {
    "wait for all": "all",
    "Chen": "fixed",
    "Elfving": "elfving",
    "BDSGD": "deep-markov",
}
_MARGIN: Final = 0.005  # of a cut-off
_MOST: Final = 0.95  # of the iterations
_RUNS: Final = 10


def figure_1(speed: str, seed: int) -> dict[str, Any]:
    """Return the mean best cut-off of several runs, and the mean throughput at each cut-off."""
    means, curve = [], np.zeros(0)
    for run in range(seed, seed + _RUNS):
        ascending = np.sort(drifting(ITERATIONS, run, SPEEDS[speed]).seconds, axis=1)
        throughput = np.arange(1, ascending.shape[1] + 1) / ascending
        means.append(float(throughput.argmax(axis=1).mean() + 1))
        curve = throughput.mean(axis=0) / _RUNS + (curve if curve.size else 0)
    return {"oracle": means, "throughput": [round(value, 4) for value in curve.tolist()]}


def figure_2(fits: Fits, settings: Settings) -> dict[str, Any]:
    """Return each rule's iterations on one run, and BDSGD's counts on all of them.

    Rules wait for all only as long as they must: Elfving for its window, BDSGD for its lag.
    """
    first = four_nodes(ITERATIONS, settings.seed)
    played = {name: _played(model, fits, settings, settings.seed) for name, model in RULES.items()}
    counts = [
        _played(RULES["BDSGD"], fits, settings, settings.seed + run).count.tolist()
        for run in range(settings.repeats)
    ]
    bdsgd = played["BDSGD"]
    return {
        "run times": {str(t): first.seconds[t - 1].tolist() for t in SHOWN},
        "oracle": {
            "throughput": bdsgd.best_throughput.tolist(),
            "count": bdsgd.best_count.tolist(),
        },
        "rules": {
            name: {
                "throughput": done.throughput.tolist(),
                "count": done.count.tolist(),
                "saved_s": (done.all_s - done.ended_s).tolist(),
            }
            for name, done in played.items()
        },
        "lag": _needs(fits),
        "counts": counts,
    }


def figure_3a(fits: Fits, settings: Settings) -> dict[str, Any]:
    """Return true and predicted run times, ascending, and the cut-off, of two iterations."""
    run = four_nodes(ITERATIONS, settings.seed)
    following = _bdsgd(fits).follow(run.node, settings.seed)
    seen = np.zeros(len(run.node), dtype=bool)
    found = {}
    for t in range(1, max(PREDICTED) + 1):
        if t in PREDICTED:
            draws = np.sort(following.predict().sample(settings.samples), axis=1)
            throughput = np.arange(1, draws.shape[1] + 1) / draws
            found[str(t)] = {
                "true": np.sort(run.seconds[t - 1]).tolist(),
                "predicted": draws.mean(axis=0).tolist(),
                "low": np.quantile(draws, 0.05, axis=0).tolist(),
                "high": np.quantile(draws, 0.95, axis=0).tolist(),
                "cut-off": int(throughput.mean(axis=0).argmax()) + 1,
            }
        following.observe(run.seconds[t - 1], seen)
    return found


def _played(model: str, fits: Fits, settings: Settings, seed: int) -> Replay:
    run = four_nodes(ITERATIONS, seed)
    learned = model == RULES["BDSGD"]
    chosen: Any = CutOffSettings
    rule = make_rule(
        chosen(model, "count" if learned else None, warmup=1 if learned else settings.warmup),
        node=run.node,
        seed=seed,
        fitted=_bdsgd(fits) if learned else None,
    )
    return replay(rule, run.seconds, censored=False)


def _bdsgd(fits: Fits) -> Model:
    model = fits.model(RULES["BDSGD"])
    assert model is not None
    return model


def _needs(fits: Fits) -> int:
    return _bdsgd(fits).needs


def claims_1(speed: str, found: Plain) -> list[Claim]:
    """Compare the best cut-off of cluster ii with the paper's, as mean and of the mean curve."""
    published = SPEEDS[speed].oracle
    oracle = Spread(tuple(found["oracle"]))
    peak = int(np.argmax(found["throughput"])) + 1
    most = _MARGIN * published
    near = oracle.near(published, most) and abs(peak - published) <= most
    return [
        Claim(
            f"figure 1: ii-{speed}",
            f"the oracle's cut-off is {published} of 2175 (the law is chosen so: not a result)",
            f"{oracle:.1f}, mean of the iterations; {peak}, of the mean throughput",
            None if near else False,
            margin=f"{100 * _MARGIN:g} %, both",
        )
    ]


def claims_2(found: Plain) -> list[Claim]:
    """Judge what section 4.1 says of the iterations in which a node is slow."""
    counts = np.array(found["counts"])[:, found["lag"] : PAPERS_EVENT[2]]
    share = Spread(tuple((counts <= WITHOUT_SLOW).mean(axis=1).tolist()))
    few = Spread(tuple(counts.mean(axis=1).tolist()))
    return [
        Claim(
            "figure 3a, section 4.1: cluster i",
            "while a node is slow, BDSGD ignores its 40 workers and waits for nearly all others",
            f"at most {WITHOUT_SLOW} workers awaited in {100 * share.mean:.1f} ± "
            f"{100 * share.error:.1f} % of these iterations, {few:.1f} on average",
            share.mean >= _MOST and few.mean >= _MOST * WITHOUT_SLOW,
            margin=f"{100 * _MOST:g} % of the iterations, and of the {WITHOUT_SLOW} workers",
        )
    ]
