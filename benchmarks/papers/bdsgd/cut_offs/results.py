"""Results of a rule on a cluster, and tables of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from benchmarks.papers.over_seeds import Spread
from benchmarks.rows import table

from outpace.predict.replay import Replay

BLOCKS: Final = 8  # of a single recording


@dataclass(frozen=True)
class Row:
    """The results of one rule.

    Attributes:
        omega: Ω in percent of the oracle's, for each run, or for each block of a single run, so
            that rows of a table can be compared part by part.
        runs: one value for each run: the mean distance from the oracle's cut-off in gradients
            ("apart"), and the per cent of the wall-clock time of waiting for all that is saved
            ("saved").
    """

    omega: Spread
    runs: dict[str, Spread]

    @classmethod
    def of(cls, runs: Sequence[Replay]) -> Row:
        each = {
            "apart": [float(np.abs(run.count - run.best_count).mean()) for run in runs],
            "saved": [100 * float(1 - run.ended_s.sum() / run.all_s.sum()) for run in runs],
        }
        parts = [run.of_oracle for run in runs] if len(runs) > 1 else blocks(runs[0])
        spreads = {name: Spread(tuple(values)) for name, values in each.items()}
        return cls(Spread(tuple(parts)), spreads)


Rows = Mapping[str, Row]  # by rule
Kept = dict[tuple[str, str], Rows]  # by cluster and observation


def blocks(run: Replay, count: int = BLOCKS) -> list[float]:
    """Return the per cent of the oracle of blocks of consecutive iterations of one run.

    The per cent are a ratio of means, R; a block's is R + mean(Ω − R Ω*) / mean(Ω*), with the
    first mean over the block and the other over the run. So their mean is R, and they vary as
    it does: batch means of a ratio's linear part.
    """
    best = run.best_throughput
    ratio = run.of_oracle / 100
    rest = np.array_split(run.throughput - ratio * best, count)
    usual = best.sum() / count  # blocks may differ by one iteration
    return [100 * float(ratio + part.sum() / usual) for part in rest]


def markdown(kept: Kept, observation: str) -> str:
    """Return a table of Ω with this observation: a row for each rule, a column for each cluster."""
    found = {name: rows for (name, seen), rows in kept.items() if seen == observation}
    rules = dict.fromkeys(rule for rows in found.values() for rule in rows)
    cells = [
        [rule, *(f"{rows[rule].omega:.2f}" if rule in rows else "" for rows in found.values())]
        for rule in rules
    ]
    return "\n".join(table([observation, *found], cells))
