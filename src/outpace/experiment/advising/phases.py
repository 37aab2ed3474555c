"""The phases of a study: each yields trials, and later trials depend on the results.

The search is successive halving (Jamieson and Talwalkar, AISTATS 2016) over seeds. First the
references, BSP and all-reduce, and then all candidates are run on one seed with each learning rate
of a fixed grid; the better half, then a quarter, and then the finalists are run with their best two
rates on further seeds. The references are in every round, so they are tuned as well as the
finalists. A trial ends when it can no longer win. Its limit depends only on earlier rounds, and not
on which trial ends first. So the same study gives the same result on any number of processors,
unless its time runs out.

The finalists, BSP and all-reduce are then run on fresh seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from outpace.experiment.advising.candidates import BSP, first_of_families
from outpace.experiment.advising.curves import FRESH, SEARCH, Trial
from outpace.experiment.advising.findings import LONGEST, Findings
from outpace.experiment.advising.runner import Budget

FINALISTS: Final = 4
# number of learning rates of each candidate, and of the references, after that round
_RATES, _SURE = 2, 3
_POINTS: Final = 10  # number of evaluations until the best time so far, in the search
_FRESH_POINTS: Final = 25  # the same on fresh seeds
_LEAST_SEEDS: Final = 3  # fresh seeds that come before the others


def search(found: Findings, budget: Budget) -> Iterator[list[Trial]]:
    """Yield the rounds of the search.

    The references have one more learning rate in the further rounds. Without it, 47 of 600
    simulated studies of equal candidates found a candidate to be better than BSP, whose best rate
    had been left out; with it, 34 did.
    """
    references = found.references
    others = [name for name in found.names if name not in references]

    def trials(
        names: Sequence[str], rates: Callable[[str], Sequence[float]], seeds: int = 1
    ) -> list[Trial]:
        limits, every_s = {name: found.limit_s(name) for name in names}, found.every_s(_POINTS)
        return [
            Trial(SEARCH, name, rate, seed, limits[name], every_s=every_s)
            for name in names
            for rate in rates(name)
            for seed in found.search_seeds[:seeds]
        ]

    budget.until(1.0)  # without a candidate of each family there is no choice
    yield trials(references, lambda _: found.grid[:1])
    yield trials(references, lambda _: found.grid)
    # approximately right for the others, whose times then stop further trials
    rate = found.rates(BSP)[0]
    first = first_of_families(found.problem.candidates)
    yield trials([name for name in others if name in first], lambda _: [rate])
    budget.until(0.5)
    yield trials(others, lambda _: [rate])
    yield trials(others, lambda _: found.grid)
    if found.best_s() is None:
        return
    for width, seeds in _rounds(found, len(others)):
        others = found.ranked(others)[:width]
        found.left = (*references, *others)
        yield [
            *trials(references, lambda name: found.rates(name)[:_SURE], seeds),
            *trials(others, lambda name: found.rates(name)[:_RATES], seeds),
        ]


def fresh_seeds(found: Findings, budget: Budget) -> Iterator[list[Trial]]:
    """Yield the runs of the finalists and the references on the fresh seeds."""
    budget.until(1.0)
    names = finalists(found)
    possible = budget.possible
    if len(names) > possible / _LEAST_SEEDS:
        budget.is_cut = True
        names = names[: max(2, int(possible / _LEAST_SEEDS))]
    if possible < 2 or len(names) < 2:
        return
    bsp_s = found.best_s([BSP]) or found.horizon_s
    limit_s = min(found.horizon_s, LONGEST * bsp_s)
    every_s = found.every_s(_FRESH_POINTS)
    # An answer on few seeds is more important than the changed clusters.
    for seeds in (found.seeds[:_LEAST_SEEDS], found.seeds):
        for _ in range(2):  # the second time with the lower rate of the candidates that diverged
            yield [
                Trial(
                    FRESH,
                    name,
                    found.fresh_rate(name),
                    seed,
                    limit_s=limit_s,
                    every_s=every_s,
                )
                for seed in seeds
                for name in names
            ]


def finalists(found: Findings) -> list[str]:
    """Return BSP, the finalists and all-reduce, in the order of importance."""
    best = found.ranked(n for n in found.left if n not in found.references)[:FINALISTS]
    second = [name for name in found.references if name != BSP]
    return [BSP, *best[:1], *second, *best[1:]]


def _rounds(found: Findings, others: int) -> list[tuple[int, int]]:
    """Return the number of candidates, besides the references, and of seeds in each further round.

    Without learning rates to choose, the second seed suffices to choose the finalists.
    """
    half, quarter = (max(FINALISTS, math.ceil(others / part)) for part in (2, 4))
    rounds = [(half, 2), (quarter, 3), (FINALISTS, len(found.search_seeds))]
    return rounds[:1] if found.problem.rate is None else rounds


def planned(found: Findings) -> int:
    """Return the approximate number of trials of a complete study that begins now."""
    names, rates = len(found.names), len(found.grid)
    further = sum(_RATES * width for width, _ in _rounds(found, names)) if rates > 1 else names // 2
    fresh = len(found.seeds) * min(FINALISTS + len(found.references), names)
    return names * rates + further + fresh


PHASES: Final = ((SEARCH, search), (FRESH, fresh_seeds))
