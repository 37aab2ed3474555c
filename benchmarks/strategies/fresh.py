"""The goals of `adaptive`, judged on seeds that have chosen nothing.

    python -m benchmarks.strategies.fresh                       # the table of what is recorded
    python -m benchmarks.strategies.fresh --record --missing    # measure what has no result
    python -m benchmarks.strategies.fresh --record --missing --cells digits-cnn
    python -m benchmarks.strategies.fresh --record --missing --again "adaptive, quorums"

The suite runs each strategy on five seeds, and calls the one with the smallest mean time the best.
The best of 24 on five seeds was lucky, too, so a strategy that is as good is behind it there. Here
the best fixed strategy of a cell and `adaptive` run again on twenty other seeds, with the learning
rates that the search found for them. `benchmarks.strategies.rivals` measures the cell first.

With SGD the default of `adaptive` is `stale: true`, else quorums only.

Goals: at most 3 % more time to the target than the best fixed strategy of the cell; where the slow
workers change every 2 s (`moving`), at least 10 % less.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Final

from benchmarks.papers.results import origin
from benchmarks.strategies import rivals
from benchmarks.strategies.command import exit_code, recording_options, recording_parser
from benchmarks.strategies.outcome import Measured, Outcome, read, save
from benchmarks.strategies.rates import Tuned
from benchmarks.strategies.recording import record
from benchmarks.strategies.suite import HERE, Cell, Tuning
from benchmarks.strategies.table import README, dated, ratio, readme_with, seconds

from outpace.support.estimates import Estimate

FOLDER: Final = HERE / "fresh"
BEGIN: Final = "<!-- python -m benchmarks.strategies.fresh -->"
END: Final = "<!-- end of the fresh seeds -->"
ADAPTIVE: Final = ("adaptive, quorums", "adaptive, stale")
SEEDS: Final = tuple(range(100, 120))
# The largest time to the target, in times of the best fixed strategy's.
GOAL: Final = 1.03
GOAL_MOVING: Final = 0.9


@dataclass(frozen=True, slots=True)
class Comparison:
    """The best fixed strategy of a cell and `adaptive`.

    Attributes:
        best: the name of the fixed strategy.
        rates: of the strategies, from the search on other seeds.
        outcome: what is recorded of the twenty seeds.
    """

    best: str
    rates: Mapping[str, Tuned]
    outcome: Outcome

    @property
    def cell(self) -> Cell:
        return self.outcome.cell

    def of(self, name: str) -> Measured | None:
        return next((each for each in self.outcome.strategies if each.name == name), None)

    def beside_best(self, name: str) -> Estimate | None:
        """Return the time in times of the best fixed strategy's, over pairs of equal seeds."""
        best, other = self.of(self.best), self.of(name)
        return None if best is None or other is None else other.relative_to(best)


def comparisons(patterns: Sequence[str] | None) -> list[Comparison]:
    """Return those of these cells, or of all, on which `adaptive` was measured.

    Raises:
        ConfigError: if no cell has such a name, or BSP was not measured on one.
    """
    known = rivals.everything() if patterns is None else rivals.recorded(patterns)
    found = [comparison(fixed, others) for fixed, others in known]
    return [each for each in found if each is not None]


def comparison(fixed: Outcome, others: Outcome) -> Comparison | None:
    """Return what is compared on a cell; None if `adaptive` was not measured there.

    Results with other learning rates than those of today are left out.
    """
    best = rivals.best_fixed(fixed, others)
    adaptive = [each for each in others.strategies if each.name in ADAPTIVE]
    if best is None or not adaptive:
        return None
    chosen = [best, *adaptive]
    rates = {each.name: each.tuned for each in chosen}
    strategies = tuple(each.candidate for each in chosen)
    searched = Tuning(runs=0, finalists=0, seeds=())
    cell = replace(others.cell, rivals=strategies, seeds=SEEDS, tuning=searched)
    outcome = read(cell, FOLDER) or Outcome(cell, {})
    same = [each for each in outcome.strategies if each.tuned.rate == rates[each.name].rate]
    return Comparison(best.name, rates, replace(outcome, strategies=tuple(same)))


def table(found: Sequence[Comparison]) -> str:
    """Return the times, and for each goal the cells in which it is met."""
    measured = [each for each in found if each.of(each.best) is not None]
    if not measured:
        return "Nothing is recorded yet."
    hours = sum(one.cpu_s for each in measured for one in each.outcome.strategies) / 3600
    when = dated([each.outcome.origin for each in measured])
    lines = [
        f"{when}: {len(SEEDS)} seeds, {hours:.1f} hours of processor time.",
        "",
        f"| cell | the best fixed strategy | {' | '.join(ADAPTIVE)} |",
        f"|---|---|{'---|' * len(ADAPTIVE)}",
    ]
    for each in measured:
        best = each.of(each.best)
        assert best is not None
        ratios = [each.beside_best(name) for name in ADAPTIVE]
        row = ["" if estimate is None else ratio(estimate) for estimate in ratios]
        lines.append(f"| {each.cell.name} | {best.name}: {seconds(best)} | {' | '.join(row)} |")
    return "\n".join([*lines, "", *_goals(measured)])


def _goals(measured: Sequence[Comparison]) -> Iterator[str]:
    """Yield a line for each goal: in which cells it is met, missed, or not decided."""
    goals = (
        ("at most 3 % more time than the best fixed strategy", False, GOAL),
        ("at least 10 % less where the slow workers change", True, GOAL_MOVING),
    )
    for name, (text, of_moving, most) in product(ADAPTIVE, goals):
        verdicts: dict[str, list[str]] = {"met": [], "missed": [], "not decided": []}
        for each in measured:
            estimate = each.beside_best(name)
            if estimate is not None and (each.cell.cluster == rivals.MOVING) is of_moving:
                verdicts[judged(estimate, most)].append(each.cell.name)
        parts = [f"{verdict} in {', '.join(where)}" for verdict, where in verdicts.items() if where]
        yield f"- `{name}`, {text}: {'; '.join(parts) or 'not measured'}."


def judged(estimate: Estimate, most: float) -> str:
    """Return whether a ratio is surely at most so much: `met`, `missed` or `not decided`."""
    if estimate.high is not None and estimate.high <= most:
        return "met"
    return "missed" if estimate.low is not None and estimate.low > most else "not decided"


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0; 1 if a run failed, 2 if an option is wrong, 130 after Ctrl-C."""
    parser = recording_parser(
        "benchmarks.strategies.fresh", __doc__, "those with adaptive", ADAPTIVE
    )
    return exit_code(partial(_carry_out, recording_options(parser, arguments)))


def _carry_out(options: argparse.Namespace) -> int:
    if options.record:
        chosen = comparisons(options.cells)
        rates = {each.cell.name: each.rates for each in chosen}
        cells = [each.cell for each in chosen]
        for each in chosen:
            if read(each.cell, FOLDER) is not None:
                save(each.outcome, FOLDER)  # without results with other rates
                rivals.forget(each.outcome, options.again, FOLDER)
        record(cells, origin(), FOLDER, options.processes, missing=options.missing, tuned=rates)
    text = table(comparisons(None))
    if options.record:
        README.write_text(readme_with(text, README, BEGIN, END), "utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
