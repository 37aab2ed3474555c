"""Strategies that change in the run, and SpecSync, beside the best fixed strategy of each cell.

    python -m benchmarks.strategies.rivals                          # the table of what is recorded
    python -m benchmarks.strategies.rivals --record --missing       # measure what has no result
    python -m benchmarks.strategies.rivals --record --missing --again SpecSync   # it has changed

They are measured as the suite measures its strategies: the same search for the learning rate, the
same seeds, runs of the same length at most. `outpace advise` does not choose from them. The cluster
`moving`, on which the slow workers change every 2 s, counts here, too. A quorum of half of the
workers is a setting of the rule, so it is measured as one more fixed strategy.

The best of so many strategies on five seeds was lucky, too; `benchmarks.strategies.fresh` judges
the goals of `adaptive` on other seeds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.papers.results import origin
from benchmarks.strategies.command import exit_code, recording_options, recording_parser
from benchmarks.strategies.measuring import longest_s
from benchmarks.strategies.outcome import Measured, Outcome, read, save
from benchmarks.strategies.recording import record
from benchmarks.strategies.suite import HERE, Cell, cells
from benchmarks.strategies.table import README, dated, ratio, readme_with, seconds

from outpace.errors import ConfigError
from outpace.experiment.advising.question.candidates import Candidate

FOLDER: Final = HERE / "rivals"
BEGIN: Final = "<!-- python -m benchmarks.strategies.rivals -->"
END: Final = "<!-- end of the rivals -->"
MOVING: Final = "moving"
HALF: Final = "drop the last half"

# BSP is at the target after 40 to 60 iterations of 0.1 s. Sync-Switch uses it for 10 of them; its
# paper finds the share by a search for each job. AdaComm decides each second: its paper's minute is
# longer than these runs. `adaptive` begins with stale gradients if the optimizer is SGD, which some
# tasks have; then it is measured without them, too.
RIVALS: Final = (
    Candidate("adaptive, quorums", "adaptive", {"kind": "adaptive", "stale": False}),
    Candidate("adaptive, stale", "adaptive", {"kind": "adaptive", "stale": True}),
    Candidate("Sync-Switch", "adaptive", {"kind": "adaptive", "rule": "sync-switch", "after": 10}),
    Candidate(
        "AdaComm",
        "adaptive",
        {"kind": "adaptive", "rule": "adacomm", "every": 16, "interval_s": 1.0},
    ),
    Candidate("SpecSync", "speculative", {"kind": "specsync"}),
    Candidate(HALF, "quorum", {"kind": "drop-stragglers", "quorum_percent": 50}),
)


def cell_of(fixed: Outcome) -> Cell:
    """Return the cell with the rivals in place of the fixed strategies.

    Raises:
        ConfigError: if BSP was not measured, whose time says how long the runs may be.
    """
    if fixed.bsp is None:
        raise ConfigError(
            f"{fixed.cell.name}: BSP is not recorded; measure the fixed strategies first: "
            f"python -m benchmarks.strategies --record --missing --cells {fixed.cell.name}"
        )
    is_sgd = fixed.cell.data["optimizer"]["kind"] == "sgd"
    usable = tuple(each for each in RIVALS if is_sgd or not each.sync.get("stale"))
    return replace(fixed.cell, limit_s=longest_s(fixed.cell, fixed.bsp), rivals=usable)


def recorded(patterns: Sequence[str]) -> Iterator[tuple[Outcome, Outcome]]:
    """Yield for each of these cells what is known of the fixed strategies and of the rivals.

    Raises:
        ConfigError: if no cell has such a name, or BSP was not measured on one.
    """
    for cell in cells(patterns):
        yield of_cell(read(cell) or Outcome(cell, {}))


def everything() -> list[tuple[Outcome, Outcome]]:
    """Return the same for all cells on which BSP was measured."""
    known = [read(cell) for cell in cells(["*", MOVING])]
    return [of_cell(fixed) for fixed in known if fixed is not None and fixed.bsp is not None]


def of_cell(fixed: Outcome) -> tuple[Outcome, Outcome]:
    """Return what is known of the fixed strategies of a cell, and of the rivals.

    Raises:
        ConfigError: see `cell_of`.
    """
    rivals = cell_of(fixed)
    return fixed, read(rivals, FOLDER) or Outcome(rivals, {})


def forget(outcome: Outcome, names: Sequence[str], folder: Path) -> None:
    """Remove the results of these strategies from the file of the cell."""
    left = tuple(each for each in outcome.strategies if each.name not in names)
    if left != outcome.strategies:
        save(replace(outcome, strategies=left), folder)


def table(found: Sequence[tuple[Outcome, Outcome]]) -> str:
    """Return the times of the rivals in times of the best fixed strategy's."""
    measured = [(fixed, rivals) for fixed, rivals in found if rivals.strategies]
    if not measured:
        return "Nothing is recorded yet."
    names = [each.name for each in RIVALS]
    hours = sum(one.cpu_s for _, rivals in measured for one in rivals.strategies) / 3600
    lines = [
        f"{dated([rivals.origin for _, rivals in measured])}: {hours:.1f} hours of processor time.",
        "",
        f"| cell | the best fixed strategy | {' | '.join(names)} |",
        f"|---|---|{'---|' * len(names)}",
    ]
    for fixed, rivals in measured:
        by_name = {each.name: each for each in rivals.strategies}
        best = best_fixed(fixed, rivals)
        row = [_beside(by_name.get(name), best) for name in names]
        first = "none reached the target on all seeds" if best is None else _named(best)
        lines.append(f"| {fixed.cell.name} | {first} | {' | '.join(row)} |")
    return "\n".join(lines)


def best_fixed(fixed: Outcome, rivals: Outcome) -> Measured | None:
    """Return the best fixed strategy; None if none always reached the target."""
    half = [each for each in rivals.strategies if each.name == HALF]
    return replace(fixed, strategies=(*fixed.strategies, *half)).best


def _named(best: Measured) -> str:
    return f"{best.name}: {seconds(best)}"


def _beside(rival: Measured | None, best: Measured | None) -> str:
    if rival is None or best is None:
        return ""
    return ratio(rival.relative_to(best)) + ("†" if rival.tuned.at_edge else "")


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0; 1 if a run failed, 2 if an option is wrong, 130 after Ctrl-C."""
    names = [each.name for each in RIVALS]
    whose = "all whose BSP is recorded"
    parser = recording_parser("benchmarks.strategies.rivals", __doc__, whose, names)
    return exit_code(partial(_carry_out, recording_options(parser, arguments)))


def _carry_out(options: argparse.Namespace) -> int:
    if options.record:
        known = list(recorded(options.cells)) if options.cells else everything()
        for _, rivals in known:
            forget(rivals, options.again, FOLDER)
        chosen = [rivals.cell for _, rivals in known]
        record(chosen, origin(), FOLDER, options.processes, missing=options.missing)
    text = table(everything())
    if options.record:
        README.write_text(readme_with(text, README, BEGIN, END), "utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
