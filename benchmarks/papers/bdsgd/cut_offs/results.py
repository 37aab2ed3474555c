"""Results of a rule on a cluster: numbers for the table, cut-offs for the pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from outpace.predict.replay import Replay

BLOCKS: Final = 8  # of a single recording


@dataclass(frozen=True)
class Row:
    """The results of one rule.

    Args:
        parts: Ω in percent of the oracle's, for each run, or for each block of a single run, so
            that rows of a table can be compared part by part.
        cut_offs, oracles: iterations by the number of workers that the rule, and the oracle,
            waited for.
        apart: iterations by the number of workers that the rule waited for beyond the oracle.
    """

    parts: list[float]
    numbers: dict[str, float]
    cut_offs: dict[int, int]
    oracles: dict[int, int]
    apart: dict[int, int]

    @classmethod
    def of(cls, runs: Sequence[Replay], fit_s: float) -> Row:
        counts, best, ready, whole, reviews = (
            np.concatenate([getattr(run, name) for run in runs])
            for name in ("count", "best_count", "ready_s", "rule_s", "reviews")
        )
        numbers = {
            "gradients/s": float(np.mean([run.gradients_per_s for run in runs])),
            "time saved": 100 * round(float(np.mean([run.time_saved for run in runs])), 9),
            **{f"count {level}": float(np.quantile(counts, level / 100)) for level in (10, 50, 90)},
            "apart": float(np.abs(counts - best).mean()),
            "ready ms": 1e3 * float(np.median(ready)),
            "in all ms": 1e3 * float(np.median(whole)),
            "reviews": float(reviews.mean()),
            "fit s": fit_s,
        }
        parts = [run.of_oracle for run in runs] if len(runs) > 1 else blocks(runs[0])
        return cls(parts, numbers, _often(counts), _often(best), _often(counts - best))

    @property
    def of_oracle(self) -> float:
        return float(np.mean(self.parts))

    @property
    def error(self) -> float:
        """Standard error of `of_oracle`."""
        return error(self.parts)

    def more_than(self, other: Row) -> tuple[float, float]:
        """Return the difference in points and its standard error; both had the same run times."""
        return float(np.subtract(self.parts, other.parts).mean()), error(
            np.subtract(self.parts, other.parts)
        )

    def plain(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"of oracle": self.of_oracle, "error": self.error, **asdict(self)}


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
