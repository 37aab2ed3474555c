"""Compare SpecSync with ASP, the strategy that it extends, on three clusters of the suite.

    python -m benchmarks.strategies.speculation            # the table of what is recorded
    python -m benchmarks.strategies.speculation --record   # measure: 11 minutes of processor time
    python -m benchmarks.strategies.speculation --times    # what workers do in 15 s, one seed

Each strategy has a learning rate of its own, chosen by the runs of the suite. Then all are run on
the same ten seeds.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from benchmarks.papers.results import origin
from benchmarks.strategies.command import described_parser, exit_code
from benchmarks.strategies.measuring import longest_s, measure
from benchmarks.strategies.outcome import Measured
from benchmarks.strategies.suite import HERE, Cell, cells
from benchmarks.strategies.table import ratio, seconds

from outpace.experiment.advising.question.candidates import Candidate
from outpace.experiment.running import simulate
from outpace.experiment.trials import Pool
from outpace.support.replacing import replace_file

RESULTS: Final = HERE / "speculation.json"
CELLS: Final = ("digits-cnn/even", "digits-cnn/slow-workers", "digits-cnn/bursts")
SEEDS: Final = tuple(range(10))
_LENGTH_S: Final = 15.0
ASP: Final = Candidate("ASP", "asynchronous", {"kind": "asp"})
# An iteration takes 0.1 s, so the 15 others push 4.5 times in 0.03 s on average, and 7 are enough.
FIXED: Final = {"kind": "specsync", "abort_time_s": 0.03, "abort_rate": 0.4}
SPECULATING: Final = (
    Candidate("SpecSync", "speculation", {"kind": "specsync"}),
    Candidate("SpecSync, fixed", "speculation", FIXED),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0; 1 if a run failed, 2 if a file is wrong, 130 after Ctrl-C."""
    parser = described_parser("benchmarks.strategies.speculation", __doc__)
    parser.add_argument("--record", action="store_true", help="measure, and keep the results")
    parser.add_argument("--times", action="store_true", help="staleness and abandoned time")
    options = parser.parse_args(arguments)
    return exit_code(partial(_carry_out, options), "nothing was recorded")


def _carry_out(options: argparse.Namespace) -> int:
    if options.times:
        print(times())
        return 0
    if options.record:
        with Pool(1) as pool:
            found = {cell.name: list(measured(cell, pool)) for cell in chosen()}
        data = {**origin(), "cells": {name: _plain(each) for name, each in found.items()}}
        text = json.dumps(data, indent=1) + "\n"
        replace_file(RESULTS, lambda path: path.write_text(text, "utf-8"))
    print(table(json.loads(RESULTS.read_text("utf-8"))))
    return 0


def chosen() -> list[Cell]:
    """Return the cells, with the seeds of this comparison."""
    return [replace(cell, seeds=SEEDS) for cell in cells(CELLS)]


def measured(cell: Cell, pool: Pool) -> Iterator[Measured]:
    """Measure ASP, then the others, which may take a multiple of its time."""
    (asp,) = measure(cell, [ASP], cell.limit_s, pool, 1)
    yield asp
    yield from measure(cell, SPECULATING, longest_s(cell, asp), pool, 1)


def times() -> str:
    """Return, in Markdown, what workers do in 15 s of virtual time, without the training."""
    lines = [
        "| cluster | strategy | gradients | mean staleness | begun again | computed in vain |",
        "|---|---|---|---|---|---|",
    ]
    for cell in chosen():
        for strategy in (ASP, *SPECULATING):
            data = strategy.applied(cell.data)
            left = {key: data[key] for key in ("workers", "servers", "compute", "network", "sync")}
            task, stop = {"kind": "timing"}, {"virtual_time_s": _LENGTH_S}
            summary = simulate({**left, "seed": 0, "task": task, "stop": stop}).summary
            again = summary.get("resyncs", {"count": 0, "abandoned_s": 0.0})
            gradients = sum(summary["iterations"])
            row = [
                f"{cell.name.partition('/')[2]} | {strategy.name} | {gradients:,}",
                f"{summary['staleness']['mean']:.1f}",
                f"{again['count'] / gradients:.0%}",
                f"{again['abandoned_s'] / _LENGTH_S:.1%}",
            ]
            lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def _plain(found: Sequence[Measured]) -> list[dict[str, Any]]:
    return [each.plain() for each in found]


def table(data: Mapping[str, Any]) -> str:
    """Return the results in Markdown: times of ASP, and those of the others relative to it."""
    found = {name: [Measured.of(row) for row in rows] for name, rows in data["cells"].items()}
    others = [each.name for each in SPECULATING]
    lines = [
        f"| cluster | ASP | {' | '.join(f'{name} / ASP' for name in others)} |",
        f"|---|---|{'---|' * len(others)}",
    ]
    for name, (asp, *rest) in found.items():
        ratios = [ratio(each.relative_to(asp)) for each in rest]
        lines.append(f"| {name} | {seconds(asp)} | {' | '.join(ratios)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
