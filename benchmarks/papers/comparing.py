"""Run the variants of an experiment with a progress bar for each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from outpace.cli.base import progress_bars
from outpace.experiment.compared import Variant
from outpace.experiment.comparison import compare


def compare_with_bars(variants: Sequence[Variant], out: Path, *, seeds: int = 1) -> None:
    """Run each variant on each seed in a folder of `out`; see `compare`. Raises its errors."""
    with progress_bars() as bar:
        compare(variants, out, seeds=seeds, progress=lambda variant: bar(variant.name))
