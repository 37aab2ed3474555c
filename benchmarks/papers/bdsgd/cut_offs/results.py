"""Results of a rule on a cluster: numbers for the table, cut-offs for the pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from benchmarks.papers.over_seeds import Spread
from numpy.typing import NDArray

from outpace.predict.replay import Replay

# By which Spread.below decides, as the margin of a claim.
INTERVAL: Final = "95 % interval of the paired difference"
BLOCKS: Final = 8  # of a single recording


@dataclass(frozen=True)
class Row:
    """The results of one rule.

    Args:
        parts: Ω in percent of the oracle's, for each run, or for each block of a single run, so
            that rows of a table can be compared part by part.
        runs: one value for each run: the mean distance from the oracle's cut-off in gradients
            ("apart"), the per cent of the wall-clock time of waiting for all that is saved
            ("saved"), and medians of the decisions' times in ms ("ready", "in all").
        numbers: means over all runs, for the table.
        cut_offs, oracles: iterations by the number of workers that the rule, and the oracle,
            waited for.
        apart: iterations by the number of workers that the rule waited for beyond the oracle.
    """

    parts: list[float]
    runs: dict[str, list[float]]
    numbers: dict[str, float]
    cut_offs: dict[int, int]
    oracles: dict[int, int]
    apart: dict[int, int]

    @classmethod
    def of(cls, runs: Sequence[Replay], fit_s: float) -> Row:
        counts, best, reviews = (
            np.concatenate([getattr(run, name) for run in runs])
            for name in ("count", "best_count", "reviews")
        )
        each = {
            "apart": [float(np.abs(run.count - run.best_count).mean()) for run in runs],
            "saved": [100 * float(1 - run.ended_s.sum() / run.all_s.sum()) for run in runs],
            "ready": [1e3 * float(np.median(run.ready_s)) for run in runs],
            "in all": [1e3 * float(np.median(run.rule_s)) for run in runs],
        }
        numbers = {
            "gradients/s": float(np.mean([run.gradients_per_s for run in runs])),
            "time saved": 100 * round(float(np.mean([run.time_saved for run in runs])), 9),
            **{f"count {level}": float(np.quantile(counts, level / 100)) for level in (10, 50, 90)},
            "apart": float(np.mean(each["apart"])),
            "ready ms": float(np.mean(each["ready"])),
            "in all ms": float(np.mean(each["in all"])),
            "reviews": float(reviews.mean()),
            "fit s": fit_s,
        }
        parts = [run.of_oracle for run in runs] if len(runs) > 1 else blocks(runs[0])
        return cls(parts, each, numbers, _often(counts), _often(best), _often(counts - best))

    @property
    def of_oracle(self) -> float:
        return float(np.mean(self.parts))

    @property
    def error(self) -> float:
        """Standard error of `of_oracle`."""
        return error(self.parts)

    @property
    def omega(self) -> Spread:
        return Spread(tuple(self.parts))

    def spread(self, of: str) -> Spread:
        """Return one of `runs`."""
        return Spread(tuple(self.runs[of]))

    def plain(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"of oracle": self.of_oracle, "error": self.error, **asdict(self)}

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Row:
        """Return the row that `plain` wrote."""
        often = {
            name: {int(count): times for count, times in data[name].items()}
            for name in ("cut_offs", "oracles", "apart")
        }
        return cls(data["parts"], data["runs"], data["numbers"], **often)


def error(values: Sequence[float] | NDArray[np.float64]) -> float:
    """Return the standard error of the mean of these values, NaN for a single one."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else np.nan


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


def _often(values: NDArray[np.int64]) -> dict[int, int]:
    return dict(sorted(Counter(values.tolist()).items()))
