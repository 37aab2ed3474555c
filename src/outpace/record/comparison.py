"""comparison.json: the results of a comparison for each variant over its seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from outpace.record.folder import COMPARISON
from outpace.support.estimates import NOTHING, Estimate
from outpace.support.regular_files import read_text


@dataclass(frozen=True, slots=True)
class VariantResult:
    """The results of a variant over its seeds; the attributes are the fields of comparison.json.

    Every variant is compared with the first one, over their common seeds. Times are compared only
    if both have the same target.

    Attributes:
        name: the variant.
        seeds, failed, missed: number of its runs, of failed runs, and of runs that did not reach
            the target.
        run_s: time of a complete run, with an interval that contains a further run with a
            probability of 90 %.
        time_to_target_s, accuracy, goodput, ratio_to_first: NOTHING if there is no target, no
            accuracy, or no `faults`.
        distinguishable: whether the interval of the ratio (or, without a target, of the difference
            in accuracy) excludes equality; None for the first variant, and with fewer than two
            common seeds.
    """

    name: str
    seeds: int = 0
    failed: int = 0
    missed: int = 0
    run_s: Estimate = NOTHING
    time_to_target_s: Estimate = NOTHING
    accuracy: Estimate = NOTHING
    goodput: Estimate = NOTHING
    ratio_to_first: Estimate = NOTHING
    distinguishable: bool | None = None


def plain_comparison(variants: Sequence[VariantResult]) -> list[dict[str, Any]]:
    """Return the content of comparison.json."""
    return [asdict(each) for each in variants]


def read_comparison(folder: Path) -> list[VariantResult]:
    """Return the content of comparison.json in a folder; empty if it is missing or damaged."""
    try:
        return msgspec.json.decode(read_text(folder / COMPARISON), type=list[VariantResult])
    except (OSError, ValueError, RecursionError):
        return []
