"""The search: each candidate's learning rate, and the candidates that are worth more trials.

Successive halving (Jamieson and Talwalkar, AISTATS 2016) over virtual time and seeds. First the
references, BSP and all-reduce, are tuned on one seed: from the configured learning rate in steps of
2, until their best rate has a slower one on both sides. All candidates are then tried with the best
rate of BSP, one of each family before the others, and with half of it, twice of it, and one step
beyond if that is faster. So the first runs have a rate that is about right, and their times stop
the others. In each further round the better half gets two more trials each, on another seed or
beyond the edge of the rates tried so far, and in the last round each finalist gets four. Where
learning rates cannot be set, the better half is tried on a second seed, and that is all. Trials
that cannot win are stopped. The references take part in every round, and have more trials than the
finalists in the last one; they are compared with their own best curve only.

Which trials are stopped depends on the rounds before, never on which trial ends first, so the same
study gives the same result on any number of processors unless its time runs out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from outpace.experiment.advising.curves import Bound, Curve, Trial
from outpace.experiment.advising.ranking import STEP, Ranking

FINALISTS: Final = 4
SEEDS: Final = 5  # for the search
_FIRST_RATES: Final = 3
_CLIMBS: Final = 5  # rounds beyond the edge while the references are tuned first
_LAST: Final = 4  # trials of each finalist in the last round, to be sure of its learning rate
_SURE: Final = 6  # of each reference


class Runner(Protocol):
    """Carries trials out."""

    def run(self, trials: Sequence[Trial]) -> Iterable[tuple[Trial, Curve]]:
        """Yield the trials with their curves as they end.

        A trial ends when it has reached the target and its `until_s`, when its bound stops it, or
        at its horizon. Trials for which there was no time are missing.
        """
        ...

    @property
    def over(self) -> bool:
        """True if there is no time for further trials of the search."""
        ...


@dataclass(frozen=True, slots=True)
class Space:
    """The candidates, the seeds and the limits of a search.

    Attributes:
        names: of the candidates.
        references: names of those that take part in every round.
        rate: the configured learning rate; None: trials cannot have another one.
        seeds: for the search, SEEDS of them.
        horizon_s: virtual time at which every trial ends.
        level: score of the target.
        order: the names in the order in which they are first tried; empty: as they are.
        first: how many of that order, beside the references, are tried before the others.
        climbs: whether the references are tuned first; else candidates begin with `rate`.
    """

    names: tuple[str, ...]
    references: tuple[str, ...]
    rate: float | None
    seeds: tuple[int, ...]
    horizon_s: float
    level: float
    order: tuple[str, ...] = ()
    first: int = 0
    climbs: bool = True

    @property
    def others(self) -> tuple[str, ...]:
        """The names that are no references, in the order in which they are first tried."""
        return tuple(n for n in self.order or self.names if n not in self.references)

    @property
    def trials(self) -> int:
        """The number of trials of all rounds, without those beyond the edge while tuning first."""
        references = len(self.references)
        others = len(self.names) - references
        widths = [min(width, others) for width in _widths(others)]
        if self.rate is None:
            return len(self.names) + references + widths[0]
        further = sum(references + width for width in widths)
        last = _SURE * references + _LAST * min(FINALISTS, others)
        return _FIRST_RATES * len(self.names) + 2 * further + last


class Search(Ranking):
    """Which trials are next, by what those so far say."""

    def __init__(self, space: Space) -> None:
        super().__init__(space.names, space.rate, space.seeds, space.level)
        self.space = space
        self._left = tuple(space.names)  # those that took part in the last round

    def _bound(self, name: str) -> Bound:
        """Return the bound of the candidate's next trials."""
        level = self.space.level
        if name in self.space.references:
            own = [(c.crossing_s(level), c) for c in self.known[name].trials.values()]
            reached = [(at, c) for at, c in own if at is not None]
            best = min(reached, key=lambda pair: pair[0])[1] if reached else None
        else:
            best = self.best_curve
        return Bound(self.space.horizon_s, level, best)

    def _trial(self, name: str, rate: float, seed: int = 0) -> Trial:
        return Trial(name, rate, self.space.seeds[seed], self._bound(name))

    def _further(self, name: str) -> Iterator[Trial]:
        """Yield a candidate's two trials of a further round.

        If its best rate is at an edge of those tried: the next rate beyond it, and the best rate on
        the second seed. Otherwise the two best rates on the next seed.
        """
        beyond = self._beyond(name)
        if beyond is None:
            yield from self._repeated(name, 2)
            return
        yield self._trial(name, beyond)
        yield from self._repeated(name, 1)

    def _repeated(self, name: str, count: int, rates: int = 2) -> Iterator[Trial]:
        """Yield trials of the best rates on the first seeds that they were not tried on."""
        known = self.known[name]
        order = self.fastest_rates(name)[:rates]
        every = (
            self._trial(name, rate, seed) for seed in range(len(self.space.seeds)) for rate in order
        )
        yield from itertools.islice((t for t in every if t not in known.trials), count)

    def rounds(self) -> Iterator[list[Trial]]:
        """Yield the trials of each round; they must be noted before the next is asked for."""
        space = self.space
        rate = space.rate or 1.0
        others = space.others
        yield [self._trial(name, rate) for name in space.references]
        if space.rate is not None and space.climbs:
            yield from self._climb()
            rate = self.fastest_rates(space.references[0])[0]
        for some in (others[: space.first], others[space.first :]):
            yield [self._trial(name, rate) for name in some]
        if space.rate is None:
            self._left = tuple(self._best(_widths(len(others))[0]))
            kept = (*space.references, *self._left)
            yield [t for name in kept for t in self._repeated(name, 1)]
            return
        tried = [name for name in (*space.references, *others) if self.known[name].trials]
        yield [self._trial(name, r) for name in tried for r in (rate / STEP, rate * STEP)]
        edges = {name: self._beyond(name) for name in tried if name in others}
        yield [self._trial(name, edge) for name, edge in edges.items() if edge is not None]
        for keep in _widths(len(others)):
            self._left = tuple(self._best(keep))
            kept = (*space.references, *self._left)
            yield [t for name in kept for t in self._further(name)]
        self._left = tuple(self._best(FINALISTS))
        last = [t for name in space.references for t in self._repeated(name, _SURE, 3)]
        yield last + [t for name in self._left for t in self._repeated(name, _LAST)]

    def _climb(self) -> Iterator[list[Trial]]:
        """Yield the rounds that tune the references on the first seed."""
        names, rate = self.space.references, self.space.rate or 1.0
        yield [self._trial(name, rate * STEP) for name in names]
        for _ in range(_CLIMBS):
            beyond = [(name, edge) for name in names if (edge := self._beyond(name)) is not None]
            if not beyond:
                return
            yield [self._trial(name, edge) for name, edge in beyond]

    def _beyond(self, name: str) -> float | None:
        """Return the next rate to try if the fastest one is the lowest or the highest tried."""
        rates = self.known[name].rates
        if not rates:
            return None
        best = self.fastest_rates(name)[0]
        return best / STEP if best == rates[0] else best * STEP if best == rates[-1] else None

    @property
    def is_narrow(self) -> bool:
        """True if not even a candidate of each family has been tried."""
        return sum(bool(self.known[name].trials) for name in self.space.others) < self.space.first

    def finalists(self) -> list[str]:
        """Return the best candidates that are no references, the best first."""
        return self._best(FINALISTS)

    def for_fresh_seeds(self, most: float) -> list[str]:
        """Return the references and finalists, or fewer: BSP, the first, and what fits in."""
        references, finalists = [*self.space.references], self.finalists()
        while len(finalists) > 1 and len(references) + len(finalists) > most:
            finalists = finalists[:-1]
        if len(references) + len(finalists) > most:
            references = references[:1]
        return [*references, *finalists]

    def _best(self, count: int) -> list[str]:
        """Return the best of those that took part in the last round and are no references."""
        ranked = self.ranked(without=self.space.references)
        return [n for n in ranked if n in self._left and self.failure(n) is None][:count]

    def cost_s(self, names: Sequence[str]) -> float:
        """Return the processor time of the candidates' trials."""
        curves = [c for name in names for c in self.known[name].trials.values()]
        return math.fsum(curve.cost_s for curve in curves)


def _widths(candidates: int) -> list[int]:
    """Return how many candidates take part in the further rounds: a half, then a quarter."""
    half = max(FINALISTS, math.ceil(candidates / 2))
    quarter = max(FINALISTS, math.ceil(candidates / 4))
    return [half, quarter] if candidates > FINALISTS else [candidates]


def carry_out(
    search: Search,
    runner: Runner,
    *,
    begin: Callable[[Search], None] = lambda _: None,
    news: Callable[[Search], None] = lambda _: None,
) -> None:
    """Search until the rounds, or the time of the runner, are over.

    If no trial has reached the target with any of the first learning rates, the search ends.

    Args:
        begin: called before each round.
        news: called after each trial.
    """
    for trials in search.rounds():
        begin(search)
        new = [t for t in trials if t not in search.known[t.candidate].trials]
        for trial, curve in runner.run(new):
            search.note(trial, curve)
            news(search)
        least = 1 if search.space.rate is None else _FIRST_RATES
        tried = all(len(known.rates) >= least for known in search.known.values())
        if runner.over or (tried and search.best_curve is None):
            break
