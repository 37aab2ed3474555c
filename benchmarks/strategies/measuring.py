"""Runs the strategies of a cell: the runs that choose a learning rate, then those that count."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, TypeAlias

from benchmarks.strategies.outcome import Measured
from benchmarks.strategies.rates import Trial, Tuned, search
from benchmarks.strategies.suite import Cell

from outpace.config.reading import experiment_from
from outpace.errors import RunError
from outpace.experiment.advising.candidates import Candidate
from outpace.experiment.trials import Ended, Order, Point
from outpace.support.estimates import TimeTo

# Runs that may continue side by side, answered all at once.
_Work: TypeAlias = Generator[list[Trial], list[TimeTo], Measured]

_DIVERGED: Final = "try a smaller learning rate"  # in the errors of runs that diverged


class Runs(Protocol):
    """The methods of a `Pool` that are used here."""

    def start(self, order: Order) -> None: ...

    def wait(self) -> Sequence[Point | Ended]: ...


@dataclass(eq=False, slots=True)
class _Strategy:
    """A strategy that is being measured."""

    candidate: Candidate
    work: _Work
    trials: list[Trial] = field(default_factory=list)
    found: dict[int, TimeTo] = field(default_factory=dict)
    cpu_s: float = 0.0
    diverged: int = 0  # runs
    ended: int = 0  # runs


def measure(
    cell: Cell,
    strategies: Iterable[Candidate],
    limit_s: float,
    pool: Runs,
    beside: int,
    done: Callable[[str, int], None] = lambda _, __: None,
) -> Iterator[Measured]:
    """Measure these strategies, and yield each when it is measured.

    Args:
        cell: with the paths of its data, see `suite.with_data`.
        limit_s: the longest run, in virtual time.
        beside: strategies that are measured at a time.
        done: called with the name of a strategy and the number of its runs that have ended.

    Raises:
        ConfigError: if a strategy cannot be run on this cell.
        RunError: if a run fails in another way than by divergence.
    """
    waiting = deque(strategies)
    under_way: dict[str, _Strategy] = {}
    while waiting or under_way:
        while waiting and len(under_way) < beside:
            candidate = waiting.popleft()
            each = _Strategy(candidate, _work(cell, candidate, limit_s))
            under_way[candidate.name] = each
            _order(pool, cell, each, next(each.work))
        for event in pool.wait():
            if not isinstance(event, Ended):
                continue
            assert isinstance(event.key, tuple)
            name, place = event.key
            each = under_way[name]
            _take(each, place, event, cell)
            done(name, each.ended)
            if len(each.found) < len(each.trials):
                continue
            try:
                following = each.work.send([each.found[n] for n in range(len(each.trials))])
            except StopIteration as stop:
                del under_way[name]
                measured: Measured = stop.value
                yield replace(measured, cpu_s=each.cpu_s, diverged=each.diverged)
            else:
                _order(pool, cell, each, following)


def _take(each: _Strategy, place: int, run: Ended, cell: Cell) -> None:
    """Note what a run of the strategy found."""
    diverged = require_complete(run, f"{cell.name}, {each.candidate.name}")
    each.found[place] = time_to(run, cell.target, each.trials[place].limit_s)
    each.cpu_s += run.cpu_s
    each.diverged += diverged
    each.ended += 1


def require_complete(run: Ended, name: str) -> bool:
    """Return False if a run is complete, True if it diverged; raise RunError otherwise."""
    diverged = run.error is not None and _DIVERGED in run.error
    if run.status != "complete" and not diverged:
        raise RunError(f"{name}: {run.error}")
    return diverged


def time_to(run: Ended, target: float, limit_s: float) -> TimeTo:
    """Return when an evaluation of the run first had the target accuracy.

    A run that diverged would not reach it later; it counts as one that lasted to the limit.
    """
    for point in run.points:
        if point.accuracy is not None and point.accuracy >= target:
            return TimeTo(point.time_s, reached=True)
    return TimeTo(limit_s, reached=False)


def _order(pool: Runs, cell: Cell, each: _Strategy, trials: list[Trial]) -> None:
    each.trials, each.found = trials, {}
    for place, trial in enumerate(trials):
        data = cell.configuration(each.candidate, trial.rate, trial.seed, trial.limit_s)
        experiment = experiment_from(data, f"{cell.name}, {each.candidate.name}")
        pool.start(Order(key=(each.candidate.name, place), experiment=experiment))


def _work(cell: Cell, candidate: Candidate, limit_s: float) -> _Work:
    """Yield the runs of one strategy, and return what they found."""
    tuned = yield from _search(cell, limit_s)
    times = yield [Trial(tuned.rate, seed, limit_s) for seed in cell.seeds]
    return Measured(candidate, tuned, tuple(zip(cell.seeds, times, strict=True)))


def _search(cell: Cell, limit_s: float) -> Generator[list[Trial], list[TimeTo], Tuned]:
    """Yield the runs that choose the learning rate of a strategy, one at a time; return it."""
    tuning = cell.tuning
    found = search(cell.first_rate, tuning.runs, tuning.finalists, tuning.seeds, limit_s)
    trial = next(found)
    while True:
        (time,) = yield [trial]
        try:
            trial = found.send(time)
        except StopIteration as stop:
            tuned: Tuned = stop.value
            return tuned


def runs_of(cell: Cell) -> int:
    """Return the number of runs of a strategy."""
    return cell.tuning.total + len(cell.seeds)


def longest_s(cell: Cell, bsp: Measured) -> float:
    """Return the longest run of the other strategies, in virtual time."""
    mean_s = math.fsum(time.time_s for _, time in bsp.times) / len(bsp.times)
    return cell.most * mean_s
